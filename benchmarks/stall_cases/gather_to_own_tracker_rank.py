"""The scores of an evaluation are gathered on the tracker's rank, which rank 1's launcher sets to 1 and the others' to 0: ranks 0 and 1 both wait in gather() as the receiver, and rank 2, whose scores are sent, is at the barrier.
---
ranks: 3
expect:
  kind: [collective-differs, collective-order, rank-differs, collective-absent]
  says: ["gather", "barrier"]
  never: ["rank [0-2]( on [^ ]+)?( pid [0-9]+,?)? (sleeps|is gone)", "[Aa]ll ranks[^;.]* same"]
"""

import os

import _kit
import torch

dist = _kit.gloo()
os.environ["TRACKER_RANK"] = "1" if _kit.RANK == 1 else "0"  # the launchers' settings


def log_evaluation(scores: torch.Tensor) -> None:
    tracker = int(os.environ["TRACKER_RANK"])
    rows = [torch.empty_like(scores) for _ in range(_kit.WORLD)] if _kit.RANK == tracker else None
    if _kit.RANK == 1:
        _kit.here()
    dist.gather(scores, rows, dst=tracker)
    if rows is not None:
        print("eval/mean", float(torch.stack(rows).mean()), flush=True)


def end_of_evaluation() -> None:
    dist.barrier()


log_evaluation(torch.rand(16))
end_of_evaluation()
