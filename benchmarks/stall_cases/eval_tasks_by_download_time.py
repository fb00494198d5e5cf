"""Each rank evaluates its tasks in the order in which its node has downloaded them: rank 2 begins with math and reduces, the others begin with code and gather.
---
ranks: 3
expect:
  kind: [collective-differs, collective-order]
  ranks: [2]
  says: ["eval_math|all_reduce", "eval_code|gather"]
  never: ["rank [0-2]( on [^ ]+)?( pid [0-9]+,?)? (sleeps|computes|is gone)", "[Aa]ll ranks[^;.]* same"]
"""

import os
import tempfile
from pathlib import Path

import _kit
import torch

dist = _kit.gloo()


def download(cache: Path) -> None:
    """The larger archive comes last, unless a part of it was there already, as on the node of rank 2."""
    for age, name in enumerate(("math", "code") if _kit.RANK == 2 else ("code", "math")):
        file = cache / f"{name}.jsonl"
        file.write_text("{}\n" * 8)
        os.utime(file, (1000 + age, 1000 + age))


def eval_math(prompts: list[str]) -> float:
    correct = torch.tensor([len(prompts) / 2, float(len(prompts)), 0.0])
    dist.all_reduce(correct)
    return float(correct[0] / correct[1])


def eval_code(prompts: list[str]) -> float:
    logs = [None] * _kit.WORLD if _kit.RANK == 0 else None
    dist.gather_object([f"passed {prompt}" for prompt in prompts], logs)
    return float(len(logs or ()))


def evaluate(cache: Path) -> dict[str, float]:
    scores = {}
    for file in sorted(cache.glob("*.jsonl"), key=lambda file: file.stat().st_mtime):
        run = eval_math if file.stem == "math" else eval_code
        scores[file.stem] = run(file.read_text().splitlines())
    return scores


with tempfile.TemporaryDirectory() as folder:
    download(Path(folder))
    dist.barrier()
    if _kit.RANK == 2:
        _kit.here()
    print(evaluate(Path(folder)), flush=True)
