"""The replay actor is killed (out of memory) and started again by Ray, without its rows: the driver's sample() waits in it for rows that all rollouts have already sent.
---
ray: true
expect:
  kind: [lock, ray]
  frame: sample
  says: ["Replay|sample"]
  never: ["(?i)computes", "(?i)sleeps", "(?i)actor[^;.]* is dead", "(?i)no node"]
"""

import os
import signal
import threading
import time

import _kit
import ray


@ray.remote(num_cpus=0, max_restarts=-1, max_task_retries=-1, max_concurrency=4)
class Replay:
    def __init__(self) -> None:
        self.rows: list[int] = []
        self.more = threading.Condition()

    def add(self, rows: list[int]) -> int:
        with self.more:
            self.rows += rows
            self.more.notify_all()
        return os.getpid()

    def sample(self, count: int) -> list[int]:
        with self.more:
            self.more.wait_for(lambda: len(self.rows) >= count)
            return self.rows[-count:]

    def pid(self) -> int:
        return os.getpid()


ray.init()
replay = Replay.remote()
pid = ray.get(replay.add.remote(list(range(32))))
for step in range(1, 4):
    print(f"step {step} rows {len(ray.get(replay.sample.remote(16)))}", flush=True)
os.kill(pid, signal.SIGKILL)
while ray.get(replay.pid.remote()) == pid:
    time.sleep(0.2)
sample = replay.sample.remote(16)
time.sleep(1)
_kit.here()
print(f"step 4 rows {len(ray.get(sample))}", flush=True)
