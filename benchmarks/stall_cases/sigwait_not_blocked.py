"""A thread waits with sigwait() for the engine's SIGUSR1, but the signal is not blocked in the main thread, whose handler takes it; main joins that thread.
---
expect:
  kind: [signal, join, lock]
  says: ["sigwait|wait_for_engine|engine-ready"]
  never: ["(?i)sleeps", "(?i)computes", "(?i)process[^.;]* (was killed|is gone|has died)"]
"""

import multiprocessing
import multiprocessing.connection
import os
import signal
import threading
import time

import _kit


def run_engine(commands: multiprocessing.connection.Connection) -> None:
    time.sleep(1)  # loads its weights
    os.kill(os.getppid(), signal.SIGUSR1)
    while commands.recv() != "stop":
        pass


def wait_for_engine() -> None:
    signal.sigwait({signal.SIGUSR1})
    print("engine is ready", flush=True)


def show_signal(number: int, frame: object) -> None:
    print(f"got signal {number}", flush=True)


_kit.steps()
signal.signal(signal.SIGUSR1, show_signal)  # for the operator
commands, engine_end = multiprocessing.Pipe()
multiprocessing.get_context("fork").Process(
    target=run_engine, args=(engine_end,), name="engine", daemon=True
).start()
ready = threading.Thread(target=wait_for_engine, name="engine-ready")
ready.start()
_kit.here()
ready.join()
commands.send("generate")
