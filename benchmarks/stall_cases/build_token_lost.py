"""Rank 1's builders share two tokens in a pipe, like make's job server: two builds ran into their CPU limit and were killed with the token in their hands, so the next builders wait at the pipe, and rank 1 joins them.
---
ranks: 3
expect:
  kind: [pipe, join, subprocess, worker-gone, rank-differs]
  ranks: [1]
  says: ["build_answer|take_token|grade_builds", all_reduce]
  never: ["rank [0-2]( on [^ ]+)?( pid [0-9]+,?)? (sleeps|computes)", "rank [02]( on [^ ]+)?( pid [0-9]+,?)? (has not come|does not come|is gone)", "(?i)network"]
"""

import multiprocessing
import os
import resource
import time

import _kit
import torch


class Tokens:
    def __init__(self, count: int) -> None:
        self.reader, self.writer = os.pipe()
        os.write(self.writer, b"+" * count)

    def take_token(self) -> bytes:
        return os.read(self.reader, 1)

    def give_back(self, token: bytes) -> None:
        os.write(self.writer, token)


def build_answer(tokens: Tokens, source: str) -> None:
    resource.setrlimit(resource.RLIMIT_CPU, (1, 1))
    token = tokens.take_token()
    try:
        exec(compile(source, "<answer>", "exec"), {})
    finally:
        tokens.give_back(token)


def grade_builds(sources: list[str]) -> list[bool]:
    tokens, fork = Tokens(2), multiprocessing.get_context("fork")
    builders = [fork.Process(target=build_answer, args=(tokens, source), daemon=True) for source in sources]
    for builder in builders:
        builder.start()
        time.sleep(0.1)
    for number, builder in enumerate(builders):
        if number == 3:
            _kit.here()
        builder.join()
    return [builder.exitcode == 0 for builder in builders]


dist = _kit.gloo()
answers = [
    "x = sum(range(100))",
    "while True: pass",
    "n = 1\nwhile n: n += 1",
    "print('done')",
    "y = 2 ** 64",
]
right = grade_builds(answers) if _kit.RANK == 1 else [True] * 5
dist.all_reduce(torch.tensor(right, dtype=torch.float32))
