"""Rank 1's evaluation runs by a shell script, which shows its log with `tail -f` in the background and then waits for all its children: tail never ends.
---
ranks: 2
expect:
  kind: [subprocess, waits, idle, other, pipe]
  ranks: [1]
  says: ["tail|bash|evaluate", all_reduce]
  never: ["rank [01]( on [^ ]+)?( pid [0-9]+,?)? (computes|is gone)", "rank 0( on [^ ]+)?( pid [0-9]+,?)? sleeps", "(?i)zombie"]
"""

import os
import subprocess
import sys
import tempfile

import _kit
import torch

SCRIPT = """
set -e
"$PYTHON" -c 'import json; print(json.dumps({"pass@1": 0.42}))' > "$OUT/eval.log" 2>&1 &
tail -n +1 -f "$OUT/eval.log" &
wait
echo evaluation is over
"""


def evaluate(step: int) -> None:
    environment = {**os.environ, "OUT": tempfile.mkdtemp(), "PYTHON": sys.executable}
    _kit.here()
    subprocess.run(["bash", "-c", SCRIPT], env=environment, check=True)
    print(f"step {step} is evaluated", flush=True)


dist = _kit.gloo()
if _kit.RANK == 1:
    evaluate(3)
dist.all_reduce(torch.ones(4))
print("step 4", flush=True)
