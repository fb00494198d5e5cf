"""Rank 2 checks an answer with a regular expression that backtracks for ever.
---
ranks: 3
expect:
  kind: [busy]
  ranks: [2]
  frame: is_number
  says: [all_reduce]
  never: ["rank [01]( on [^ ]+)?( pid [0-9]+,?)? (sleeps|computes|is busy|has not come|does not come|is gone)"]
"""

import re

import _kit
import torch

dist = _kit.gloo()


def is_number(answer: str) -> bool:
    _kit.here()
    return re.match(r"^(\d+,?)+$", answer) is not None


if _kit.RANK == 2:
    is_number("1" * 60 + "x")
dist.all_reduce(torch.ones(4))
