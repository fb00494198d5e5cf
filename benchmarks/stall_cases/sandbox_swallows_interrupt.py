"""After its time limit a sandbox sends its program SIGINT and waits for its end; the model's program has a bare except around each guess, so it swallows the KeyboardInterrupt and guesses on.
---
expect:
  kind: [subprocess, busy]
  says: ["run_program|solution|solve|search|wait"]
  never: ["(?i)sleeps", "network", "zombie", "(?i)is stopped|SIGSTOP", "pipe is full|full pipe"]
"""

import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import _kit

SOLUTION = """
def check(number):
    if number * number % 1000003 == 1000004:
        raise StopIteration(number)
    return [digit for digit in str(number)]

def solve():
    number = 0
    while True:
        try:
            check(number)
        except:
            pass
        number += 1

while True:
    try:
        solve()
    except:
        pass
"""


def run_program(path: Path, limit: float) -> float:
    program = subprocess.Popen(
        [sys.executable, str(path)], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL
    )
    try:
        program.wait(timeout=limit)
    except subprocess.TimeoutExpired:
        program.send_signal(signal.SIGINT)  # so that it can still print what it has
        time.sleep(0.2)
        _kit.here()
        program.wait()
    return float(program.returncode == 0)


_kit.steps()
with tempfile.TemporaryDirectory() as folder:
    solution = Path(folder, "solution.py")
    solution.write_text(SOLUTION)
    print("reward", run_program(solution, limit=1.5), flush=True)
