"""An async tool actor runs a program with subprocess.run in its coroutine: it does not end, and all other calls wait.
---
ray: true
expect:
  kind: [ray, event-loop, subprocess, pipe, sleep]
  frame: run_tool
  says: [Tools]
  never: ["(?i)asks for more", "(?i)actor (is dead|was killed|has died)"]
"""

import subprocess

import _kit
import ray

ray.init(log_to_driver=False)


@ray.remote
class Tools:
    """Many episodes share it, so it is async; but `subprocess.run` blocks its event loop."""

    async def run_tool(self, *command: str) -> str:
        return subprocess.run(command, capture_output=True, text=True).stdout


tools = Tools.remote()
for step in range(1, 4):
    ray.get(tools.run_tool.remote("echo", str(step)))
    print(f"step {step}", flush=True)


def play_episodes() -> list[str]:
    calls = [tools.run_tool.remote("sleep", "1200")]  # a server that a model starts in the foreground
    calls += [tools.run_tool.remote("echo", str(index)) for index in range(3)]
    _kit.here()
    return ray.get(calls)


play_episodes()
