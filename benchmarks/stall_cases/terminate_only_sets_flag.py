"""Rank 1 terminates its engine process and joins it; the engine's handler of SIGTERM only sets a flag, and its loop is in get() at an empty queue, so it never looks at the flag.
---
ranks: 3
expect:
  kind: [join, subprocess, queue, pipe, network, lock]
  ranks: [1]
  says: ["stop_engine|serve_requests|Engine|engine|join", "barrier"]
  never: ["rank [02]( on [^ ]+)?( pid [0-9]+,?)? (sleeps|has not come|does not come|is gone)", "(?i)computes"]
"""

import multiprocessing
import signal
import time
from typing import Any

import _kit

dist = _kit.gloo()
fork = multiprocessing.get_context("fork")


class Engine:
    def __init__(self) -> None:
        self.requests, self.answers, self.stopping = fork.Queue(), fork.Queue(), False
        self.process = fork.Process(target=self.serve_requests, name="engine")
        self.process.start()

    def on_term(self, *_: Any) -> None:
        self.stopping = True

    def serve_requests(self) -> None:
        signal.signal(signal.SIGTERM, self.on_term)
        while not self.stopping:
            prompt = self.requests.get()
            self.answers.put(prompt[::-1])

    def generate(self, prompt: str) -> str:
        self.requests.put(prompt)
        return self.answers.get()

    def stop_engine(self) -> None:
        self.process.terminate()
        self.process.join()


if _kit.RANK == 1:
    engine = Engine()
    print(engine.generate("2 + 2 ="), flush=True)
    time.sleep(1)
    _kit.here()
    engine.stop_engine()
dist.barrier()
