"""Each rank resumes from its own latest checkpoint; rank 2's last file is empty, so it starts one step earlier and has a step left when the others are at the last barrier.
---
ranks: 3
expect:
  kind: [collective-differs, collective-order]
  ranks: [2]
  says: [barrier, all_reduce]
  never: ["rank [0-2]( on [^ ]+)?( pid [0-9]+,?)? sleeps", "[Aa]ll ranks[^;.]* same"]
"""

import os
from pathlib import Path

import _kit
import torch

dist = _kit.gloo()
FOLDER = Path(os.environ["JOBSPEC_ATTEMPT_DIR"]) / f"ckpt-{_kit.RANK}"
LAST = 8


def left_by_the_last_run() -> None:
    FOLDER.mkdir()
    for step in (4, 5):
        torch.save({"step": step}, FOLDER / f"step-{step}.pt")
    if _kit.RANK == 2:
        (FOLDER / "step-5.pt").write_bytes(b"")  # its disk was full


def resume() -> int:
    for path in sorted(FOLDER.glob("step-*.pt"), reverse=True):
        try:
            return torch.load(path)["step"]
        except (EOFError, RuntimeError):
            print(f"{path} is broken, trying an earlier one", flush=True)
    return 0


def train(start: int) -> None:
    for step in range(start + 1, LAST + 1):
        if _kit.RANK == 2 and step == LAST:
            _kit.here()
        dist.all_reduce(torch.ones(4))
        print(f"step {step}", flush=True)


left_by_the_last_run()
train(resume())
dist.barrier()
