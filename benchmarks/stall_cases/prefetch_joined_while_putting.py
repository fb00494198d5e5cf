"""At the last step main closes its prefetching loader: close() sets the stop flag and joins the thread, which stands in put() at the full queue and looks at the flag only behind it.
---
expect:
  kind: [queue, join]
  says: ["prefetch|_fill|close"]
  never: ["(?i)sleeps", "(?i)computes", "(?i)network|socket", "(?i)queue[^;.]* is empty", "(?i)waits for (the )?next (row|item)"]
"""

import itertools
import queue
import threading
from collections.abc import Iterator

import _kit
import torch


class PrefetchLoader:
    def __init__(self, prompts: Iterator[int], batch: int, depth: int = 2) -> None:
        self.prompts, self.batch = prompts, batch
        self.ready: queue.Queue[torch.Tensor] = queue.Queue(depth)
        self.stopped = threading.Event()
        self.thread = threading.Thread(target=self._fill, name="prefetch")
        self.thread.start()

    def _fill(self) -> None:
        while not self.stopped.is_set():
            rows = list(itertools.islice(self.prompts, self.batch))
            self.ready.put(torch.tensor(rows))

    def __iter__(self) -> Iterator[torch.Tensor]:
        while True:
            yield self.ready.get()

    def close(self) -> None:
        self.stopped.set()
        self.thread.join()
        while not self.ready.empty():
            self.ready.get_nowait()


def train(loader: PrefetchLoader, max_steps: int) -> None:
    for step, rows in enumerate(loader, 1):
        print(f"step {step} mean {rows.float().mean():.1f}", flush=True)
        if step == max_steps:
            break


_kit.steps()
loader = PrefetchLoader(itertools.count(), 8)
train(loader, 6)
threading.Event().wait(0.5)  # the last checkpoint is written here, and the loader fills its queue
_kit.here()
loader.close()
