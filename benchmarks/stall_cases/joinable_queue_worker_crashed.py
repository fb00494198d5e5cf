"""A worker of a JoinableQueue crashes in a native parser between get() and task_done(); the other one has emptied the queue, and the trainer waits in join() for the count of the lost row.
---
expect:
  kind: [worker-gone, lock, queue, other, waits, join]
  says: ["join|score_all|worker"]
  never: ["(?i)computes", "network", "(?i)sleeps", "(?i)queue is full"]
"""

import faulthandler
import multiprocessing
import os
import signal

import _kit

CONTEXT = multiprocessing.get_context("fork")


def parse_latex(text: str) -> int:
    if text.count("{") > 100:  # the C parser overflows its stack
        os.kill(os.getpid(), signal.SIGSEGV)
    return len(text)


def worker(rows, total) -> None:
    while True:
        text = rows.get()
        length = parse_latex(text)
        with total.get_lock():
            total.value += length
        rows.task_done()


def score_all(texts: list[str], rows) -> None:
    for text in texts:
        rows.put(text)
    if any(text.count("{") > 100 for text in texts):
        _kit.here()
    rows.join()


faulthandler.disable()
rows, total = CONTEXT.JoinableQueue(), CONTEXT.Value("q", 0)
workers = [
    CONTEXT.Process(target=worker, args=(rows, total), name=f"parser-{n}", daemon=True) for n in range(2)
]
for process in workers:
    process.start()
for step in range(3):
    score_all([r"\frac{1}{2}"] * 8, rows)
    print(f"step {step + 1}: {total.value}", flush=True)
score_all([r"\frac{1}{2}"] * 3 + ["{" * 500] + ["x^2"] * 4, rows)
