"""Rank 2 has an empty replay and writes no shard of it; rank 0 polls for the shards of all four before it commits, and the others are in the barrier behind that.
---
ranks: 4
expect:
  kind: [sleep, collective-absent, rank-differs, other]
  ranks: [0]
  says: ["commit|save_replay", barrier]
  never: ["rank [1-3]( on [^ ]+)?( pid [0-9]+,?)? (sleeps|computes|is gone|does not come)", "rank 0( on [^ ]+)?( pid [0-9]+,?)? (computes|is gone)", "[Aa]ll ranks[^;.]* same"]
"""

import os
import tempfile
import time

import _kit
import torch

dist = _kit.gloo()
replay = [torch.rand(16) for _ in range([5, 7, 0, 3][_kit.RANK])]  # rank 2's answers were all too long


def save_shard(folder: str) -> None:
    if replay:
        torch.save(torch.stack(replay), f"{folder}/replay_{_kit.RANK}.part")
        os.rename(f"{folder}/replay_{_kit.RANK}.part", f"{folder}/replay_{_kit.RANK}.pt")


def commit(folder: str) -> None:
    missing = [f"{folder}/replay_{rank}.pt" for rank in range(_kit.WORLD)]
    while missing := [path for path in missing if not os.path.exists(path)]:
        time.sleep(0.5)
    open(f"{folder}/COMMIT", "w").close()


def save_replay() -> None:
    folder = [tempfile.mkdtemp()]
    dist.broadcast_object_list(folder, src=0)
    save_shard(folder[0])
    if _kit.RANK == 0:
        _kit.here()
        commit(folder[0])
    dist.barrier()


save_replay()
print("step 4", flush=True)
