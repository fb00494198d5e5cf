"""The handler of a preemption's signal puts a request into the queue that the main thread is just clearing under the queue's own mutex: put() waits for that mutex for ever.
---
expect:
  kind: [lock, queue]
  frame: on_preempt
  says: ['on_preempt|drop_stale']
  never: ['full queue', 'room in']
"""

import queue
import signal
import time

import _kit

requests = queue.Queue()


def on_preempt(number, frame):
    requests.put("save")


def drop_stale(version):
    with requests.mutex:
        kept = [row for row in requests.queue if row[0] >= version]
        requests.queue.clear()
        time.sleep(0.5)
        _kit.here()
        signal.raise_signal(signal.SIGUSR1)
        requests.queue.extend(kept)


signal.signal(signal.SIGUSR1, on_preempt)
_kit.steps()
for index in range(6):
    requests.put((index, "prompt"))
drop_stale(3)
