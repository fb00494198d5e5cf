"""The trainer's own thread should put rewards into a multiprocessing queue but waits for an event; a forked logger holds a copy of the queue and waits for the trainer.
---
expect: {kind: [queue, lock, waits, pipe], never: ["each waits for the other", "(?<!seems, )behind it pid", "the other end is pid"]}
"""

import multiprocessing as mp
import threading

import _kit


def logger(lines):
    while True:
        lines.get()


def score(rewards, ready):
    ready.wait()
    rewards.put(1.0)


if __name__ == "__main__":
    _kit.steps()
    ctx = mp.get_context("fork")
    rewards, lines = ctx.Queue(), ctx.Queue()
    ready = threading.Event()
    ctx.Process(target=logger, args=(lines,), daemon=True).start()
    threading.Thread(target=score, args=(rewards, ready), daemon=True).start()
    _kit.here()
    rewards.get()
