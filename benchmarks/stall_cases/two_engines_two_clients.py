r"""Ranks 1 and 2 each ask their own engine process; rank 1's waits for a token bucket's lock, rank 2's sleeps in a download. Rank 0 is in the barrier.
---
ranks: 3
expect:
  kind: [pipe, lock, sleep, rank-differs, queue]
  ranks: [1, 2]
  says: ['ask']
  never: ['ranks 1-2 .*; the other end is pid \d+ on `\S+` \(started by rank 1\), which waits for a lock[^;]*, while']
"""

import multiprocessing
import threading
import time

import _kit


def download():
    time.sleep(100_000)


def take_tokens(bucket):
    bucket.acquire()


def engine(pipe, rank):
    pipe.recv()
    if rank == 2:
        download()
    bucket = threading.Lock()
    bucket.acquire()
    take_tokens(bucket)


def ask(pipe):
    pipe.send("prompt")
    return pipe.recv()


dist = _kit.gloo()
if _kit.RANK:
    ours, theirs = multiprocessing.Pipe()
    context = multiprocessing.get_context("fork")
    context.Process(target=engine, args=(theirs, _kit.RANK), daemon=True).start()
    theirs.close()
    _kit.here()
    ask(ours)
dist.barrier()
