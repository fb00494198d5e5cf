"""Rank 1 sends "seed" to its environment process, which knows only reset and step and answers nothing else: each waits for the other at their pipe.
---
ranks: 2
expect:
  kind: [pipe, network]
  ranks: [1]
  says: ["seed|serve_env|recv", all_reduce]
  never: ["rank [01]( on [^ ]+)?( pid [0-9]+,?)? (sleeps|computes|is gone)", "(?i)half.?open", "(?i)pipe[^;.]* full"]
"""

import multiprocessing
import random
from multiprocessing.connection import Connection
from typing import Any

import _kit
import torch


def serve_env(pipe: Connection) -> None:
    state = 0.0
    while True:
        command, value = pipe.recv()
        if command == "reset":
            state = 0.0
            pipe.send(state)
        elif command == "step":
            state += value + random.random()
            pipe.send((state, state > 10))


class Env:
    def __init__(self) -> None:
        self.pipe, other = multiprocessing.Pipe()
        multiprocessing.get_context("fork").Process(target=serve_env, args=(other,), daemon=True).start()

    def call(self, command: str, value: Any = None) -> Any:
        self.pipe.send((command, value))
        return self.pipe.recv()

    def seed(self, seed: int) -> None:
        self.call("seed", seed)


dist = _kit.gloo()
envs = [Env() for _ in range(2)]
print("step 4", [(env.call("reset"), env.call("step", 1.0)) for env in envs], flush=True)
if _kit.RANK == 1:  # the rank that evaluates wants the same episodes each time
    _kit.here()
    envs[0].seed(17)
dist.all_reduce(torch.ones(4))
