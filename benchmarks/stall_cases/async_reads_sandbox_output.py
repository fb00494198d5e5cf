"""Rank 1's tool loop awaits a line from its sandbox, whose answer has no newline at its end; the others reduce.
---
ranks: 2
expect:
  kind: [pipe, subprocess, event-loop, rank-differs]
  ranks: [1]
  says: ['run_tool']
  never: ['waits for the network', 'rank 0 .*network']
"""

import asyncio
import sys

import _kit
import torch

SANDBOX = """
import sys
for line in sys.stdin:
    sys.stdout.write(str(len(line)))
    sys.stdout.flush()
"""


async def run_tool(process, code):
    process.stdin.write(code.encode() + b"\n")
    await process.stdin.drain()
    return await process.stdout.readline()


async def rollouts():
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", SANDBOX, stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE
    )
    _kit.here()
    print(await run_tool(process, "1 + 1"), flush=True)


dist = _kit.gloo()
if _kit.RANK == 1:
    asyncio.run(rollouts())
dist.all_reduce(torch.ones(4))
