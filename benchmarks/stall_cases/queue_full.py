"""A producer waits at a full queue whose consumer waits for an event.
---
expect: {kind: [lock, queue], says: ["consume|produce"]}
"""

import queue
import threading

import _kit

rows: "queue.Queue[int]" = queue.Queue(2)
ready = threading.Event()


def consume() -> None:
    ready.wait()
    rows.get()


def produce() -> None:
    for row in range(9):
        if row == 2:
            _kit.here()
        rows.put(row)


_kit.steps()
threading.Thread(target=consume, daemon=True, name="consumer").start()
produce()
