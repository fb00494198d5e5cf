"""An engine actor has one thread for control calls; drain() waits in it for the end of the generation, which only abort() would bring, and abort() is queued behind drain().
---
ray: true
expect:
  kind: [lock, ray, waits, several]
  says: ["drain|abort"]
  never: ["(?i)computes", "(?i)network", "(?i)sleeps", "(?i)(is|has) (gone|died|dead)", "(?i)resources that"]
"""

import threading
import time

import _kit
import ray


@ray.remote(num_cpus=0, concurrency_groups={"control": 1})
class Engine:
    def __init__(self) -> None:
        self.aborted = threading.Event()
        self.idle = threading.Event()
        self.idle.set()

    def generate(self, prompt: str, tokens: int) -> str:
        self.idle.clear()
        try:
            text = prompt * tokens
            if tokens > 100:  # until somebody ends it
                self.aborted.wait()
            return text
        finally:
            self.idle.set()

    @ray.method(concurrency_group="control")
    def drain(self) -> None:
        self.idle.wait()

    @ray.method(concurrency_group="control")
    def abort(self) -> None:
        self.aborted.set()


ray.init()
engine = Engine.remote()
for step in range(1, 4):
    ray.get([engine.generate.remote("a", 10), engine.drain.remote()])
    print(f"step {step}", flush=True)
long = engine.generate.remote("a", 4096)
time.sleep(1)
drained = engine.drain.remote()  # for the new weights
time.sleep(1)
_kit.here()
ray.get(engine.abort.remote())
ray.get([long, drained])
