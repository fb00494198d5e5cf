"""A formatter reads its input to the end, but the runner waits for it without closing its stdin.
---
ranks: 2
expect:
  kind: [subprocess, pipe]
  ranks: [1]
  says: [run_tool, all_reduce]
  never: ["(?i)network", "sleeps", "computes", "(?i)queue"]
"""

import subprocess

import _kit
import torch


def run_tool(code: str) -> int:
    tool = subprocess.Popen(["sort"], stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True)
    tool.stdin.write(code)
    tool.stdin.flush()
    return tool.wait()


dist = _kit.gloo()
if _kit.RANK == 1:
    _kit.here()
    run_tool("b\na\n")
dist.all_reduce(torch.ones(4))
