"""An async grader waits for the end of its tests, whose output fills a pipe that it does not read.
---
expect:
  kind: [subprocess, event-loop, pipe]
  says: [run_tests]
  never: ["sleeps", "computes", "(?i)network", "(?i)queue"]
"""

import asyncio

import _kit


async def run_tests() -> int:
    tests = await asyncio.create_subprocess_exec("seq", "1000000", stdout=asyncio.subprocess.PIPE)
    return await tests.wait()


_kit.steps()
_kit.here()
print(asyncio.run(run_tests()), flush=True)
