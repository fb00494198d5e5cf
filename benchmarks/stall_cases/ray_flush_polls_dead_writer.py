"""The writer thread of a metrics actor has died of a value that JSON does not know; flush() polls until all records are written, and the driver waits for flush().
---
ray: true
expect:
  kind: [sleep, waits, ray, queue]
  frame: flush
  says: ["flush"]
  never: ["(?i)network|socket", "(?i)computes", "(?i)each other", "(?i)actor (Metrics )?(is|has) (gone|died|dead)"]
"""

import json
import threading
import time

import _kit
import ray


@ray.remote(num_cpus=0)
class Metrics:
    def __init__(self) -> None:
        self.records: list[dict] = []
        self.lines: list[str] = []
        threading.Thread(target=self.write, name="metrics-writer", daemon=True).start()

    def write(self) -> None:
        while True:
            if self.records:
                self.lines.append(json.dumps(self.records[0]))
                self.records.pop(0)
            time.sleep(0.02)

    def log(self, record: dict) -> None:
        self.records.append(record)

    def flush(self) -> int:
        while self.records:
            time.sleep(0.2)
        return len(self.lines)


ray.init()
metrics = Metrics.remote()
for step in range(1, 4):
    ray.get(metrics.log.remote({"step": step, "reward": step / 10}))
    print(f"step {step}", ray.get(metrics.flush.remote()), flush=True)
ray.get(metrics.log.remote({"step": 4, "reward": complex(0.4, 0)}))
result = metrics.flush.remote()
time.sleep(2)
_kit.here()
ray.get(result)
