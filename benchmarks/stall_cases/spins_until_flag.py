"""Rank 1 spins without a pause until its worker's shared flag is set; the worker has ended of an error before that. The others reduce.
---
ranks: 2
expect:
  kind: [busy, rank-differs]
  ranks: [1]
  says: ['wait_flag']
  never: ['GPU', 'rank 0 .*(computes|uses the CPU)']
"""

import multiprocessing

import _kit
import torch

flag = multiprocessing.get_context("fork").Value("b", 0)


def worker():
    raise SystemExit(1)


def wait_flag():
    while not flag.value:
        pass


dist = _kit.gloo()
if _kit.RANK == 1:
    multiprocessing.get_context("fork").Process(target=worker).start()
    _kit.here()
    wait_flag()
dist.all_reduce(torch.ones(4))
