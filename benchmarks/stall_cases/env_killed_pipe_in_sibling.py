"""An environment process is killed in its step; the one forked after it has inherited its end of the pipe, so the trainer never sees the end of it and waits for the observation.
---
act: kill
expect:
  kind: [pipe, queue, network, worker-gone]
  says: ["step_all|env|recv"]
  never: ["(?i)computes", "(?i)sleeps"]
"""

import multiprocessing
import time
from typing import Any

import _kit

context = multiprocessing.get_context("fork")


def env_loop(pipe: Any, seconds: float) -> None:
    observation = 0
    while True:
        command, action = pipe.recv()
        if command == "close":
            return
        time.sleep(seconds if action == 2 else 0)
        observation += action
        pipe.send((observation, 0.0, False))


class VectorEnv:
    def __init__(self, count: int) -> None:
        pairs = [context.Pipe() for _ in range(count)]
        self.pipes = [ours for ours, _ in pairs]
        self.processes = [
            context.Process(
                target=env_loop, args=(theirs, 0.0 if index else 30.0), name=f"env-{index}", daemon=True
            )
            for index, (_, theirs) in enumerate(pairs)
        ]
        for process in self.processes:
            process.start()
        for _, theirs in pairs:
            theirs.close()

    def step_all(self, actions: list[int]) -> list[Any]:
        for pipe, action in zip(self.pipes, actions, strict=True):
            pipe.send(("step", action))
        if 2 in actions:
            _kit.here(self.processes[0].pid)
        return [pipe.recv() for pipe in self.pipes]


_kit.steps()
envs = VectorEnv(3)
envs.step_all([0, 1, 1])
envs.step_all([2, 1, 0])
