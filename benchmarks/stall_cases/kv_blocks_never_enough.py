"""An engine's scheduler takes prompts strictly in order, and the first one needs more KV blocks than there are in all: it stays at the head, the loop finds nothing to run, and main waits for the answers.
---
expect:
  kind: [future, sleep, waits, other]
  says: ["schedule|serve|generate_all|scheduler"]
  never: ["network", "(?i)is gone", "(?i)deadlock", "waits for a lock of"]
"""

import collections
import threading
import time
from concurrent.futures import Future

import _kit

BLOCK = 16


class Engine:
    def __init__(self, blocks: int) -> None:
        self.free = blocks
        self.waiting: collections.deque[tuple[str, Future[str]]] = collections.deque()
        threading.Thread(target=self.serve, name="scheduler", daemon=True).start()

    def generate(self, prompt: str) -> Future[str]:
        future: Future[str] = Future()
        self.waiting.append((prompt, future))
        return future

    def schedule(self) -> list[tuple[str, Future[str]]]:
        batch = []
        while self.waiting and len(self.waiting[0][0]) // BLOCK + 1 <= self.free:
            prompt, future = self.waiting.popleft()
            self.free -= len(prompt) // BLOCK + 1
            batch.append((prompt, future))
        return batch

    def serve(self) -> None:
        while True:
            batch = self.schedule()
            if not batch:
                time.sleep(0.05)
            for prompt, future in batch:
                self.free += len(prompt) // BLOCK + 1
                future.set_result(prompt[-8:])


def generate_all(engine: Engine, prompts: list[str]) -> list[str]:
    return [future.result() for future in [engine.generate(prompt) for prompt in prompts]]


engine = Engine(blocks=64)
generate_all(engine, ["What is 2 + 2?"] * 8)
_kit.steps()
_kit.here()
generate_all(engine, ["Read this: " + "lorem " * 400, "What is 3 + 3?", "What is 4 + 4?"])
