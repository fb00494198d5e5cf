"""The trainer spins on a version in shared memory until its engine has loaded the weights; the engine process has died of a shape that does not fit.
---
expect:
  kind: [busy, worker-gone]
  says: ["wait_for_version|until_loaded"]
  never: ["(?i)sleeps", "network", "waits for a lock", "serve (waits|sleeps|computes)"]
"""

import multiprocessing
import multiprocessing.connection

import _kit

CONTEXT = multiprocessing.get_context("fork")


def serve(commands: multiprocessing.connection.Connection, version) -> None:
    weights = [0.0] * 8
    while True:
        update = commands.recv()
        if len(update) != len(weights):
            raise ValueError(f"size mismatch for lm_head: {len(update)} and {len(weights)}")
        weights[:] = update
        version.value += 1


def wait_for_version(version, wanted: int) -> None:
    while version.value < wanted:
        pass


ours, theirs = CONTEXT.Pipe()
version = CONTEXT.Value("q", 0, lock=False)
CONTEXT.Process(target=serve, args=(theirs, version), daemon=True, name="engine").start()
for step in range(1, 4):
    ours.send([float(step)] * 8)
    wait_for_version(version, step)
_kit.steps()
ours.send([4.0] * 9)  # a token was added
_kit.here()
wait_for_version(version, 4)
