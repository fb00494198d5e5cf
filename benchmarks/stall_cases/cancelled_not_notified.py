"""A prompt that is too long is given up with cancel(); the batcher thread drops it without set_running_or_notify_cancel(), so concurrent.futures.wait() in main never takes that future for done.
---
expect:
  kind: [future, lock, queue, waits]
  says: ["gather_scores"]
  never: ["(?i)sleeps", "(?i)computes", "(?i)network", "(?i)batcher[^.;]* (is gone|has ended|died)", "(?i)deadlock"]
"""

import concurrent.futures
import queue
import threading
import time

import _kit


class Batcher:
    """Scores prompts in the order of their coming, on a thread of its own."""

    def __init__(self) -> None:
        self.requests: queue.SimpleQueue = queue.SimpleQueue()
        threading.Thread(target=self.serve, name="batcher", daemon=True).start()

    def submit(self, prompt: str) -> concurrent.futures.Future:
        future: concurrent.futures.Future = concurrent.futures.Future()
        self.requests.put((prompt, future))
        return future

    def serve(self) -> None:
        while True:
            prompt, future = self.requests.get()
            if future.cancelled():
                continue
            time.sleep(0.1)
            future.set_result(len(prompt) / 10)


def gather_scores(batcher: Batcher, prompts: list[str]) -> list[float]:
    futures = [batcher.submit(prompt) for prompt in prompts]
    for prompt, future in zip(prompts, futures, strict=True):
        if len(prompt) > 1000:
            future.cancel()
            _kit.here()
    concurrent.futures.wait(futures)
    return [0.0 if future.cancelled() else future.result() for future in futures]


batcher = Batcher()
_kit.steps()
for step in range(4, 9):
    prompts = ["why " * (step * 2), "how", "prove it", "and then " * (12 if step < 6 else 150)]
    print(f"step {step}", gather_scores(batcher, prompts), flush=True)
