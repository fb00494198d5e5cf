"""Rank 1's first reward worker raised; its sibling, forked later, still has that pipe's other end open: no EOF, and the rank waits.
---
ranks: 2
expect:
  kind: [pipe, network, worker-gone]
  ranks: [1]
  says: [ask, all_reduce]
  never: ["sleeps", "computes", "(?i)queue between", "each waits for the other"]
"""

import multiprocessing

import _kit
import torch

fork = multiprocessing.get_context("fork")


def work(pipe) -> None:
    while True:
        pipe.send(1.0 / pipe.recv())


def ask(pipe, number: int) -> float:
    pipe.send(number)
    return pipe.recv()


dist = _kit.gloo()
if _kit.RANK == 1:
    pipes = []
    ends = []
    for _ in range(2):
        near, far = fork.Pipe()
        fork.Process(target=work, args=(far,), daemon=True).start()
        pipes.append(near)
        ends.append(far)
    for far in ends:
        far.close()
    _kit.here()
    ask(pipes[0], 0)
dist.all_reduce(torch.ones(1))
