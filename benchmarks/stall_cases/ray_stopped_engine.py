"""The core process of an engine actor gets SIGSTOP; the driver waits for both engines.
---
ray: true
act: stop
expect:
  kind: [stopped]
  says: [is stopped, "engine_core|step_engine"]
  never: ["(?i)has not the resources", "(?i)is dead|died"]
"""

import multiprocessing
import time
from typing import Any

import _kit
import ray


def engine_core(pipe: Any) -> None:
    while True:
        prompt = pipe.recv()
        time.sleep(0.05)
        pipe.send(prompt + " and so on")


@ray.remote(num_cpus=0, max_concurrency=4)
class Engine:
    def __init__(self) -> None:
        self.pipe, theirs = multiprocessing.Pipe()
        context = multiprocessing.get_context("fork")
        self.core = context.Process(target=engine_core, args=(theirs,), name="EngineCore", daemon=True)
        self.core.start()

    def core_pid(self) -> int:
        return int(self.core.pid or 0)

    def step_engine(self, prompt: str) -> str:
        for _ in range(40):
            self.pipe.send(prompt)
            prompt = self.pipe.recv()[:64]
        return prompt


ray.init()
engines = [Engine.remote(), Engine.remote()]
_kit.steps()
pid = ray.get(engines[1].core_pid.remote())
answers = [engine.step_engine.remote("1 + 1") for engine in engines]
_kit.here(pid)
print(ray.get(answers))
