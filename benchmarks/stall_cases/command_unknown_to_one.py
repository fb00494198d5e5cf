"""Rank 0 broadcasts its commands; rank 2 runs an older worker that does not know `evaluate`, ignores it and waits for the next command, while the others gather the scores.
---
ranks: 3
expect:
  kind: [collective-differs, collective-order, collective-absent, rank-differs]
  ranks: [2]
  says: ["broadcast|next_command", "all_gather|gather_scores|evaluate"]
  never: ["(?i)sleeps", "[Aa]ll ranks[^;.]* same", "(?i)computes", "is gone"]
"""

import _kit
import torch

dist = _kit.gloo()
PLAN = ["train", "train", "evaluate", "train"]


def next_command(step: int) -> str:
    box = [PLAN[step] if _kit.RANK == 0 else ""]
    dist.broadcast_object_list(box, src=0)
    return box[0]


def train() -> None:
    dist.all_reduce(torch.ones(16))


def gather_scores() -> float:
    scores: list[float] = [0.0] * _kit.WORLD
    dist.all_gather_object(scores, 0.5 + _kit.RANK / 10)
    return sum(scores) / len(scores)


HANDLERS = {"train": train, "evaluate": gather_scores}
if _kit.RANK == 2:  # its image is from before evaluations went over all ranks
    del HANDLERS["evaluate"]

for step in range(len(PLAN)):
    if _kit.RANK == 2 and step == 3:
        _kit.here()
    command = next_command(step)
    handler = HANDLERS.get(command)
    if handler is None:
        print(f"unknown command {command}, ignored", flush=True)
        continue
    handler()
