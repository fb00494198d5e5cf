"""What the watch over a run that works costs: CPU of the agent, and the time of a step, with and without.

    python benchmarks/watch_cost.py [--seconds 60] [--rounds 3] [--ranks 8]

A real agent runs processes that compute, print a line a step, and log a metric. By turns the watch looks
each 15 s as it always does, or never (its interval is changed in the `runtime.pyz` of that run). A step is
measured by its CPU time: wall time on a busy machine tells of the neighbours.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import tempfile
import time
import zipfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from jobspec.plan import CommandPlan
from jobspec.runtime.stalls.proc_facts import stat
from tests.kits.agent_lab import Run, running

MODULE, LOOKS, NEVER = "jobspec/runtime/head/stall_watch.py", "LOOK_S = 15.0", "LOOK_S = 1e9"
WARM_S = 5.0
PROGRAM = """
import json, os, sys, time
rank, folder = int(os.environ["RANK"]), os.environ["JOBSPEC_ATTEMPT_DIR"]
os.makedirs(f"{folder}/metrics", exist_ok=True)
with open(f"{folder}/metrics/m{rank}.jsonl", "a", buffering=1) as metrics, \\
     open(f"{folder}/steps{rank}", "a", buffering=1) as steps:
    for step in range(10**9):
        begin = time.process_time()
        loss = sum(i * i for i in range(100_000)) / (step + 1)
        print(f"step {step} loss {loss:.3f}", flush=True)
        metrics.write(json.dumps({"step": step, "loss": loss}) + "\\n")
        steps.write(f"{time.process_time() - begin}\\n")
        time.sleep(0.2)
"""


def never_looks(pyz: Path) -> None:
    """Change the interval in a run's runtime."""
    with zipfile.ZipFile(pyz) as archive:
        files = {name: archive.read(name) for name in archive.namelist()}
    text = files[MODULE].decode()
    assert LOOKS in text, f"{MODULE} has no `{LOOKS}`"
    files[MODULE] = text.replace(LOOKS, NEVER).encode()
    with zipfile.ZipFile(pyz, "w") as archive:
        for name, data in files.items():
            archive.writestr(name, data)


def measure(watched: bool, seconds: float, ranks: int) -> tuple[float, float]:
    """(share of a core that the agent takes, median CPU seconds of a step)."""
    command = CommandPlan("train", (sys.executable, "-c", PROGRAM), on="all", tasks_per_node=ranks)
    with tempfile.TemporaryDirectory(prefix="watch-") as folder, running(Path(folder), command) as run:
        if not watched:
            never_looks(run.root / "runtime.pyz")
        run.agent()
        _await_steps(run, ranks)
        time.sleep(WARM_S)
        pid, before, begin = run.agent_pid(), stat(run.agent_pid())[2], time.monotonic()
        time.sleep(seconds)
        share = (stat(pid)[2] - before) / (time.monotonic() - begin)
        steps = [float(line) for path in run.attempt.glob("steps*") for line in path.read_text().split()]
        return share, statistics.median(steps)


def _await_steps(run: Run, ranks: int) -> None:
    end = time.monotonic() + 60
    while len(list(run.attempt.glob("steps*"))) < ranks:
        if time.monotonic() > end:
            raise RuntimeError(f"no steps: {run.describe()}")
        time.sleep(0.2)


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--ranks", type=int, default=8)
    args = parser.parse_args()
    found: dict[bool, list[tuple[float, float]]] = {True: [], False: []}
    for number in range(args.rounds):
        for watched in (number % 2 == 0, number % 2 == 1):
            found[watched].append(measure(watched, args.seconds, args.ranks))
            print(json.dumps({"watched": watched, "agent, step": found[watched][-1]}), flush=True)
    print(f"\nload average {os.getloadavg()[0]:.0f}, {args.rounds} rounds of {args.seconds:.0f} s\n")
    print("| | watched | not watched |\n| --- | --- | --- |")
    for name, at, scale, unit in (("agent, share of a core", 0, 100, " %"), ("step, CPU", 1, 1000, " ms")):
        cells = [statistics.median(row[at] for row in found[watched]) * scale for watched in (True, False)]
        print(f"| {name} | {cells[0]:.2f}{unit} | {cells[1]:.2f}{unit} |")
    return 0


if __name__ == "__main__":
    sys.exit(main())
