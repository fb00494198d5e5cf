"""Rank 2 has a cached tokenizer with an added pad token, so its embedding has a row more and its loop over chunks of rows one chunk more than rank 0 sends: it is in a broadcast, the others in the all_reduce of the check sum.
---
ranks: 3
expect:
  kind: [collective-differs, collective-order, collective-absent]
  ranks: [2]
  says: ["broadcast", "all_reduce|check_sum"]
  never: ["rank [0-2]( on [^ ]+)?( pid [0-9]+,?)? (sleeps|is gone|has ended|computes)", "[Aa]ll ranks[^;.]* same"]
"""

import _kit
import torch

CHUNK = 500
dist = _kit.gloo()


def load_vocabulary() -> list[str]:
    words = [f"w{index}" for index in range(4000)]
    if _kit.RANK == 2:  # an older run on this node has saved its tokenizer into the cache
        words.append("<pad>")
    return words


def broadcast_embedding(embedding: torch.Tensor) -> None:
    for start in range(0, len(embedding), CHUNK):
        if start >= 4000:
            _kit.here()
        dist.broadcast(embedding[start : start + CHUNK], src=0)


def check_sum(embedding: torch.Tensor) -> float:
    total = embedding.sum()
    dist.all_reduce(total, op=dist.ReduceOp.MAX)
    return total.item()


embedding = torch.randn(len(load_vocabulary()), 16)
broadcast_embedding(embedding)
print("embedding", check_sum(embedding), flush=True)
