"""An engine process waits for the event that weights are there, which its trainer sets only once the process has ended.
---
expect:
  kind: [lock, join, subprocess]
  says: [wait_for_weights, "join|run_engine"]
  never: ["sleeps", "computes", "(?i)network", "(?i)queue"]
"""

import multiprocessing

import _kit

fork = multiprocessing.get_context("fork")


def wait_for_weights(loaded) -> None:
    loaded.wait()


def run_engine() -> None:
    loaded = fork.Event()
    engine = fork.Process(target=wait_for_weights, args=(loaded,))
    engine.start()
    engine.join()
    loaded.set()


_kit.steps()
_kit.here()
run_engine()
