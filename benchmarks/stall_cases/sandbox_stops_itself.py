"""A model's shell script stops itself with kill -STOP $$, and the tool runner waits for its end.
---
expect: {kind: [stopped, subprocess], says: ["stopped|T"], never: ["computes"]}
"""

import subprocess

import _kit


def run_tool(script: str) -> int:
    child = subprocess.Popen(["bash", "-c", script])
    return child.wait()


_kit.steps()
print(run_tool("echo ready"))
_kit.here()
run_tool("kill -STOP $$; echo done")
