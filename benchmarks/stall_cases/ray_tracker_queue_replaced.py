"""For an evaluation a tracker actor makes a new queue, but its uploader thread still reads the old one: finish() puts the end mark into the new one and joins the thread, and the driver waits for finish().
---
ray: true
expect:
  kind: [join, queue, lock, ray]
  says: ["(?i)tracker|finish", "(?i)upload|finish"]
  never: ["(?i)computes", "(?i)resources? that (do|does) not exist", "(?i)actor[^.;]* (is dead|has died)"]
"""

import queue
import threading
import time

import _kit
import ray


@ray.remote(num_cpus=0)
class Tracker:
    def __init__(self) -> None:
        self.sent = 0
        self.rows: queue.Queue = queue.Queue()
        self.uploader = threading.Thread(target=self.upload, args=(self.rows,), name="uploader", daemon=True)
        self.uploader.start()

    def upload(self, rows: queue.Queue) -> None:
        while (row := rows.get()) is not None:
            self.sent += len(row)

    def log(self, row: dict[str, float]) -> None:
        self.rows.put(row)

    def begin_evaluation(self) -> None:
        self.rows = queue.Queue()  # so that no row of the training comes between

    def finish(self) -> int:
        self.rows.put(None)
        self.uploader.join()
        return self.sent


ray.init()
_kit.steps()
tracker = Tracker.remote()
ray.get([tracker.log.remote({"loss": 1.0 / step}) for step in range(1, 9)])
ray.get(tracker.begin_evaluation.remote())
ray.get(tracker.log.remote({"pass@1": 0.4}))
done = tracker.finish.remote()
time.sleep(3)
_kit.here()
print("rows sent", ray.get(done))
