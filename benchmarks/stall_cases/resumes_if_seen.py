"""Each rank looks itself whether there is a checkpoint; on rank 3's node the folder is not mounted, so it begins anew and gathers lengths, while the others agree on the step of the resume.
---
ranks: 4
expect:
  kind: [collective-differs, collective-order, rank-differs, collective-absent]
  ranks: [3]
  says: [all_reduce, all_gather]
  never: ["rank [0-3]( on [^ ]+)?( pid [0-9]+,?)? (sleeps|is gone|computes)", "[Aa]ll ranks[^;.]* same"]
"""

import json
import os
from pathlib import Path

import _kit
import torch

dist = _kit.gloo()
SHARED = Path(os.environ["JOBSPEC_ATTEMPT_DIR"], "runs")


def run_folder() -> Path:
    return SHARED / ("unmounted" if _kit.RANK == 3 else "grpo-7b")


def save(step: int) -> None:
    if _kit.RANK == 0:
        (SHARED / "grpo-7b").mkdir(parents=True, exist_ok=True)
        (SHARED / "grpo-7b" / "latest.json").write_text(json.dumps({"step": step}))
    dist.barrier()


def resume() -> int:
    latest = run_folder() / "latest.json"
    if not latest.exists():
        return 0
    step = torch.tensor([json.loads(latest.read_text())["step"]])
    dist.all_reduce(step, op=dist.ReduceOp.MIN)
    return int(step)


def rollout_lengths() -> list[torch.Tensor]:
    lengths = [torch.zeros(1) for _ in range(_kit.WORLD)]
    if _kit.RANK == 3:
        _kit.here()
    dist.all_gather(lengths, torch.tensor([float(_kit.RANK)]))
    return lengths


save(3)
first = resume()
print(f"resume at {first}", flush=True)
rollout_lengths()
