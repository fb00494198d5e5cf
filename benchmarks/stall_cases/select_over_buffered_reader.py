"""Rank 1's judge answers with two lines at once: the first readline() takes both into the reader's buffer, and select() waits for the second at the empty pipe.
---
ranks: 2
expect:
  kind: [pipe, subprocess, input]
  ranks: [1]
  says: ["ask_judge", all_reduce]
  never: ["(?i)sleeps", "(?i)computes", "network", "rank 0( on [^ ]+)?( pid [0-9]+,?)? (has not come|does not come|is gone)"]
"""

import select
import subprocess
import sys

import _kit
import torch

JUDGE = r"""
import sys
for line in sys.stdin:
    sys.stdout.write("helpful 4\nharmless 5\n" if line.startswith("both") else "helpful 4\n")
    sys.stdout.flush()
"""


def ask_judge(judge: subprocess.Popen, rubric: str, lines: int) -> list[bytes]:
    judge.stdin.write(rubric.encode() + b"\n")
    judge.stdin.flush()
    scores = []
    while len(scores) < lines:
        select.select([judge.stdout], [], [])
        scores.append(judge.stdout.readline())
    return scores


dist = _kit.gloo()
if _kit.RANK == 1:
    judge = subprocess.Popen([sys.executable, "-c", JUDGE], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    ask_judge(judge, "helpful", 1)
    _kit.here()
    ask_judge(judge, "both", 2)
dist.all_reduce(torch.ones(4))
