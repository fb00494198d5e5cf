"""Of three scorer processes the second hangs in its tokenizer's download; main joins them in order. The third waits at its pipe for more, as it was never told to end.
---
expect:
  kind: [sleep, subprocess, join]
  says: ['download|join']
  never: ['it waits for one of']
"""

import multiprocessing
import time

import _kit


def download():
    time.sleep(100_000)


def scorer(index, pipe):
    if index == 1:
        download()
    while index and pipe.recv() is not None:
        pass


if __name__ == "__main__":
    _kit.steps()
    context = multiprocessing.get_context("fork")
    pipes = [context.Pipe() for _ in range(3)]
    scorers = [context.Process(target=scorer, args=(i, pipes[i][1]), daemon=True) for i in range(3)]
    for one in scorers:
        one.start()
    time.sleep(0.5)
    _kit.here()
    for one in scorers:
        one.join()
