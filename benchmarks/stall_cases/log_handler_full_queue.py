"""A logging handler puts records into a full queue with the handler's lock held: the main thread cannot log.
---
expect: {kind: [lock, queue], frame: emit, says: ["full queue|queue"]}
"""

import logging
import queue
import threading
import time

import _kit

records = queue.Queue(4)


class Ship(logging.Handler):
    def emit(self, record):
        records.put(record)


log = logging.getLogger("rollout")
log.addHandler(Ship())
log.setLevel(logging.INFO)


def rollouts():
    for number in range(100):
        log.info("rollout %d", number)


_kit.steps()
threading.Thread(target=rollouts, name="rollouts", daemon=True).start()
time.sleep(1)
_kit.here()
log.info("step 4")
