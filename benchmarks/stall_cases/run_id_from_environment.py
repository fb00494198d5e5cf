"""The ranks agree on the tracker's run by gathering its id, but rank 1's container still exports that of the last run, so it takes this one, skips the gather and reduces its first loss.
---
ranks: 3
expect:
  kind: [collective-differs, collective-order]
  ranks: [1]
  says: ["all_gather", "all_reduce"]
  never: ["rank [0-2]( on [^ ]+)?( pid [0-9]+,?)? (sleeps|is gone)", "[Aa]ll ranks[^;.]* same"]
"""

import os
import uuid

import _kit
import torch

dist = _kit.gloo()
if _kit.RANK == 1:
    os.environ["TRACKER_RUN_ID"] = "run-0419"  # from the image of the run that was resumed last week


def tracker_run_id() -> str:
    if known := os.environ.get("TRACKER_RUN_ID"):
        return known
    ids: list[str | None] = [None] * _kit.WORLD
    dist.all_gather_object(ids, uuid.uuid4().hex)
    return min(name for name in ids if name)


def train(run_id: str) -> None:
    loss = torch.ones(1)
    if _kit.RANK == 1:
        _kit.here()
    dist.all_reduce(loss)
    print(run_id, float(loss), flush=True)


train(tracker_run_id())
