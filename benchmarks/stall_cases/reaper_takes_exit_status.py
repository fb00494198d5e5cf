"""A launcher has a thread that reaps any child by waitpid(-1), and so it takes the exit status of the rollout process: for multiprocessing that process stays alive, and the launcher polls is_alive() for ever to start it anew with the next weights.
---
expect:
  kind: [sleep, waits, worker-gone, subprocess, join]
  frame: wait_for_rollouts
  says: ["wait_for_rollouts"]
  never: ["(?i)computes", "(?i)network", "(?i)socket", "(?i)deadlock"]
"""

import multiprocessing
import os
import subprocess
import threading
import time

import _kit


def rollouts(version: int) -> None:
    time.sleep(1.0)
    print(f"version {version}: 64 rollouts", flush=True)


def reap_children() -> None:
    """As process 1 of its container the launcher has to reap what the sandboxes leave."""
    while True:
        try:
            pid, status = os.waitpid(-1, 0)
            print(f"reaped {pid} with {status}", flush=True)
        except ChildProcessError:
            time.sleep(0.5)


def wait_for_rollouts(process: multiprocessing.Process) -> None:
    while process.is_alive():
        time.sleep(0.2)


_kit.steps()
threading.Thread(target=reap_children, name="reaper", daemon=True).start()
sandbox = subprocess.Popen(["sleep", "3600"])
for version in range(1, 4):
    process = multiprocessing.get_context("fork").Process(target=rollouts, args=(version,), name="rollouts")
    process.start()
    time.sleep(1.5)
    _kit.here()
    wait_for_rollouts(process)
sandbox.kill()
