"""An evaluator actor waits until the latest checkpoint is that of step 100, but sorts their names as strings, in which step_90 is the last for ever; the driver waits for its score.
---
ray: true
expect:
  kind: [sleep, waits, ray]
  frame: evaluate
  says: ["Evaluator|evaluate"]
  never: ["(?i)no node (has|can)", "(?i)actor[^;.]* (is|was) (dead|gone|killed)", "(?i)(^|[^a-z])lock([^a-z]|$)"]
"""

import tempfile
import time
from pathlib import Path

import _kit
import ray


@ray.remote(num_cpus=0)
class Evaluator:
    def __init__(self, folder: str) -> None:
        self.folder = Path(folder)

    def latest(self) -> int:
        return int(sorted(path.name for path in self.folder.glob("step_*"))[-1].removeprefix("step_"))

    def evaluate(self, step: int) -> float:
        while self.latest() < step:
            time.sleep(1)
        return 0.5


ray.init()
folder = tempfile.mkdtemp(prefix="checkpoints-")
evaluator = Evaluator.remote(folder)
for step in range(10, 110, 10):
    Path(folder, f"step_{step}").mkdir()
    if step < 100:
        ray.get(evaluator.evaluate.remote(step))
    print(f"step {step}", flush=True)
result = evaluator.evaluate.remote(100)
time.sleep(2)
_kit.here()
ray.get(result)
