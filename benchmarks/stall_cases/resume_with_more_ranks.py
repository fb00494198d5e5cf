"""The checkpoint was written by two ranks, the run resumes with three: rank 2 waits for a shard of its own, which never existed, and takes it for a slow file system.
---
ranks: 3
expect:
  kind: [sleep, waits, rank-differs, disk, other]
  ranks: [2]
  says: [load_shard, "barrier|all_reduce|collective"]
  never: ["rank [01]( on [^ ]+)?( pid [0-9]+,?)? (sleeps|is gone|has not come)", "(?i)file lock|flock"]
"""

import os
import time
from pathlib import Path

import _kit
import torch

dist = _kit.gloo()
CHECKPOINT = Path(os.environ["JOBSPEC_ATTEMPT_DIR"], "checkpoint", "step_200")


def last_run(world: int) -> None:
    CHECKPOINT.mkdir(parents=True, exist_ok=True)
    for rank in range(world):
        torch.save({"moments": torch.zeros(16), "rank": rank}, CHECKPOINT / f"optimizer_{rank}.pt")


def load_shard(rank: int) -> dict:
    file = CHECKPOINT / f"optimizer_{rank}.pt"
    while not file.exists():  # the listing of the shared folder is sometimes late by some seconds
        time.sleep(0.5)
    return torch.load(file)


if _kit.RANK == 0:
    last_run(2)
dist.barrier()
if _kit.RANK == 2:
    _kit.here()
shard = load_shard(_kit.RANK)
dist.barrier()
for _ in range(3):
    dist.all_reduce(shard["moments"])
