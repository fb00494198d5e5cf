"""A shuffle buffer waits until it holds 512 rows or the data has ended; the reader thread comes to the end at 300 rows, as the last ones are filtered out, and sets the flag without a notify: main waits on the condition.
---
expect:
  kind: [lock, waits]
  says: ["sample|wait|condition|Condition"]
  never: ["(?i)sleeps", "computes", "network", "(?i)deadlock", "holds (the|that) (lock|condition)"]
"""

import random
import threading
from collections.abc import Iterator

import _kit


class ShuffleBuffer:
    def __init__(self, rows: Iterator[str], low: int) -> None:
        self.rows, self.low, self.held, self.ended = rows, low, [], False
        self.changed = threading.Condition()
        threading.Thread(target=self.fill, name="shuffle-reader", daemon=True).start()

    def fill(self) -> None:
        for row in self.rows:
            with self.changed:
                self.held.append(row)
                self.changed.notify()
        self.ended = True

    def sample(self) -> str:
        with self.changed:
            while len(self.held) < self.low and not self.ended:
                self.changed.wait()
            return self.held.pop(random.randrange(len(self.held)))


def read_prompts() -> Iterator[str]:
    for index in range(320):
        threading.Event().wait(0.005)  # parsing
        if index == 319:
            _kit.here()
        if index < 300:  # the last rows of the shard have no reference answer
            yield f"prompt {index}"


_kit.steps()
buffer = ShuffleBuffer(read_prompts(), low=512)
print(buffer.sample(), flush=True)
