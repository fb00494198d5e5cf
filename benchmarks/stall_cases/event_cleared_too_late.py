"""Actor and learner hand one buffer to and fro by two events; the learner clears `ready` only after it has logged, and so wipes out the actor's next one: each waits for the other's event.
---
expect:
  kind: [lock, waits]
  says: ["learn|ready", "act|free"]
  never: ["(?i)sleeps", "(?i)computes", "network", "(?i)is gone", "(?i)queue is (full|empty)"]
"""

import threading
import time

import _kit


class Exchange:
    def __init__(self) -> None:
        self.buffer: list[float] = []
        self.ready, self.free = threading.Event(), threading.Event()
        self.free.set()


def act(exchange: Exchange) -> None:
    step = 0
    while True:
        exchange.free.wait()
        exchange.free.clear()
        time.sleep(0.1)  # the environment
        exchange.buffer = [float(step)] * 16
        step += 1
        exchange.ready.set()


def log(step: int, loss: float) -> None:
    time.sleep(0.5 if step % 4 == 0 else 0)  # every fourth step with histograms
    print(f"step {step}: {loss:.1f}", flush=True)


def learn(exchange: Exchange, steps: int) -> None:
    for step in range(1, steps + 1):
        exchange.ready.wait()
        loss = sum(exchange.buffer)
        exchange.free.set()
        if step == 4:
            _kit.here()
        log(step, loss)
        exchange.ready.clear()


_kit.steps()
exchange = Exchange()
threading.Thread(target=act, args=(exchange,), name="actor", daemon=True).start()
learn(exchange, steps=8)
