"""Rank 1 waits for a grader whose stdout is a full pipe that nobody reads.
---
ranks: 2
expect:
  kind: [subprocess, pipe]
  ranks: [1]
  frame: grade
  says: [all_reduce, "(?i)pipe|stdout|output"]
  never: ["rank 0( on [^ ]+)?( pid [0-9]+,?)? (sleeps|has not come|does not come|is gone)"]
"""

import subprocess

import _kit
import torch

dist = _kit.gloo()


def grade() -> int:
    tests = subprocess.Popen(["seq", "1000000"], stdout=subprocess.PIPE)
    _kit.here()
    return tests.wait()


if _kit.RANK == 1:
    grade()
dist.all_reduce(torch.ones(4))
