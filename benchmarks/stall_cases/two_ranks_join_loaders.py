"""Ranks 1 and 2 join their prefetch threads; rank 1's reads a FIFO that nobody writes, rank 2's sleeps between tries of a bucket. Rank 0 reduces.
---
ranks: 3
expect:
  kind: [join, pipe, sleep, rank-differs]
  ranks: [1, 2]
  says: ['stop_loader']
  never: ['ranks 1-2 (sleep|wait at a pipe)', 'rank 0 .*threads']
"""

import os
import threading
import time

import _kit
import torch

FIFO = os.path.join(os.environ["JOBSPEC_ATTEMPT_DIR"], f"rows-{_kit.RANK}.fifo")


def read_rows():
    open(FIFO).read()


def fetch_bucket():
    while True:
        time.sleep(20)


def stop_loader(loader):
    loader.join()


dist = _kit.gloo()
if _kit.RANK:
    os.mkfifo(FIFO)
    loader = threading.Thread(target=read_rows if _kit.RANK == 1 else fetch_bucket, name="prefetch")
    loader.start()
    time.sleep(1)
    _kit.here()
    stop_loader(loader)
dist.all_reduce(torch.ones(4))
