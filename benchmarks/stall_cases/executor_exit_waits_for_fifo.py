"""The with-block of a process pool is left while one of its workers still reads a tool's FIFO that nobody opens for writing.
---
expect:
  kind: [join, pipe, subprocess]
  says: ['read_answers|prepare']
  never: ['computes', 'waits for a future of']
"""

import concurrent.futures
import multiprocessing
import os
from pathlib import Path

import _kit

FIFO = Path(os.environ["JOBSPEC_ATTEMPT_DIR"], "answers.fifo")


def read_answers(path):
    return Path(path).read_text()


def prepare():
    context = multiprocessing.get_context("fork")
    with concurrent.futures.ProcessPoolExecutor(2, mp_context=context) as pool:
        rows = pool.map(len, ["a", "bb"])
        pool.submit(read_answers, str(FIFO))
        print(sum(rows), flush=True)
        _kit.here()


if __name__ == "__main__":
    _kit.steps()
    os.mkfifo(FIFO)
    prepare()
