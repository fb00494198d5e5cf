"""A reward task runs a model's program that asks for input, and no input comes; the driver polls with ray.wait.
---
ray: true
expect: {kind: [ray, subprocess, pipe], frame: run_sandbox, never: [SIGSTOP, "no node"]}
"""

import subprocess
import sys

import _kit
import ray


@ray.remote
def run_sandbox(program: str) -> float:
    with subprocess.Popen(
        [sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as child:
        output = child.stdout.read()
    return float(output.strip() == "42")


def collect(references: list) -> list:
    rewards = []
    while references:
        done, references = ray.wait(references, timeout=2)
        rewards += ray.get(done)
    return rewards


ray.init()
for step in range(1, 4):
    print(f"step {step}", collect([run_sandbox.remote(f"print({40 + step})")]), flush=True)
_kit.here()
collect([run_sandbox.remote("n = int(input('n? '))\nprint(n * 2)"), run_sandbox.remote("print(42)")])
