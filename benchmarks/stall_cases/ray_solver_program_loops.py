"""Two solver actors in an ActorPool run the models' programs by subprocess.run without a timeout; one program is an endless loop, and the driver waits in get_next() for its turn.
---
ray: true
expect: {kind: [subprocess, busy, ray, pipe, waits], says: ["Solver|run_program|subprocess|solve"], never: ["(?i)sleeps", "resource", "(?i)pending", "network"]}
"""

import subprocess
import sys
import time

import _kit
import ray
from ray.util import ActorPool

GOOD = "print(sum(range(100)))"
LOOPS = "low, high = 0, 1\nwhile low < high:\n    middle = (low + high) // 2\n    low = middle\nprint(low)"


@ray.remote(num_cpus=0)
class Solver:
    def run_program(self, code: str) -> str:
        return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout


ray.init()
_kit.steps()
pool = ActorPool([Solver.remote() for _ in range(2)])
for code in (GOOD, LOOPS, GOOD, GOOD):
    pool.submit(lambda actor, text: actor.run_program.remote(text), code)
print(pool.get_next(), flush=True)
time.sleep(3)
_kit.here()
while pool.has_next():
    print(pool.get_next(), flush=True)
