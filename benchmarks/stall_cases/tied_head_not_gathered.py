"""For the sync to the engine each sharded parameter is gathered by its name; rank 2 was built with a tied head and has no `lm_head`: it is at the barrier behind the sync, the others gather it.
---
ranks: 3
expect:
  kind: [collective-differs, collective-order, collective-absent, rank-differs]
  ranks: [2]
  says: ["all_gather|gather_parameters", "barrier"]
  never: ["(?i)sleeps", "[Aa]ll ranks[^;.]* same", "(?i)computes", "is gone"]
"""

import _kit
import torch

dist = _kit.gloo()


def build(tied: bool) -> dict[str, torch.Tensor]:
    names = ["embed", "layers.0", "layers.1", "norm"]
    if not tied:
        names.append("lm_head")
    return {name: torch.randn(1024) for name in names}


def gather_parameters(shards: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    whole = {}
    for name, shard in shards.items():
        pieces = [torch.empty_like(shard) for _ in range(_kit.WORLD)]
        dist.all_gather(pieces, shard)
        whole[name] = torch.cat(pieces)
    return whole


def sync_to_engine(shards: dict[str, torch.Tensor]) -> None:
    whole = gather_parameters(shards)
    print(f"{len(whole)} parameters", flush=True)
    if _kit.RANK == 2:
        _kit.here()
    dist.barrier()


# the file of rank 2's node is the newer one, with tie_word_embeddings
sync_to_engine(build(tied=_kit.RANK == 2))
