"""How long the command line takes, beside what importing its libraries alone costs, all in one run.

    python benchmarks/cli.py [--repeat N] [--points N] [--runs N] [--folder DIR] [--json]

Whole processes, wall and CPU time, median of N after one warm-up. The rows are measured in turns, so that
a busy moment of the machine meets all of them. The scheduler's commands are fakes that print recorded rows
and count their calls, and files go to memory where there is /dev/shm (`--folder`): what is measured is
jobspec, not Slurm and not a disk. On a disk give `--folder`: what is rendered stays until the end, since ext4
without a journal steps over every file that was removed in the last half minute whenever it makes a new one,
and would show its clean-up as our time. Modules are compiled once, as an installation has them. submitit,
where it is installed, is measured beside it on the same fakes.
"""

from __future__ import annotations

import argparse
import getpass
import importlib.util
import json
import os
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

FLOOR = "import yaml, jsonschema, jinja2"
SPEC = """\
version: 1
name: bench
framework: command
cluster: bench
resources: {nodes: 4, gpus_per_node: 8, time: "01:00:00"}
launch: {mode: srun}
train: {command: [python3, /code/train.py, --seed, "0"], seed: 0}
container: {env: {NCCL_DEBUG: WARN}}
"""
PROFILE = """\
version: 1
name: bench
scheduler: slurm
slurm: {partition: main, gpus: gres}
paths: {runs: RUNS, node_local: /tmp/jobspec}
node: {cpus: 64, memory: 900G, gpus: 8}
limits: {max_array: 100000}
"""
SUBMITIT_ARRAY = """\
import sys, submitit
executor = submitit.SlurmExecutor(folder=sys.argv[1])
executor.update_parameters(time=60, nodes=4, ntasks_per_node=1, array_parallelism=100)
executor.map_array(abs, range(int(sys.argv[2])))
"""
SUBMITIT_STATUS = """\
import sys, submitit
jobs = [submitit.SlurmJob(folder=sys.argv[1], job_id=str(1000 + n)) for n in range(int(sys.argv[2]))]
print(len({job.state for job in jobs}))
"""


@dataclass
class Row:
    """One thing measured. `calls` counts the scheduler's commands of one repetition."""

    name: str
    action: Callable[[], None]
    aim: str = ""
    seconds: list[float] = field(default_factory=list)
    cpu_s: list[float] = field(default_factory=list)
    calls: int = 0

    @property
    def wall(self) -> float:
        return statistics.median(self.seconds)

    @property
    def cpu(self) -> float:
        return statistics.median(self.cpu_s)


class Bench:
    """A folder with a spec, a site profile, fake scheduler commands and, below `runs`, many runs."""

    def __init__(self, root: Path, points: int, runs: int) -> None:
        self.root, self.points, self.count = root, points, runs
        self.calls = root / "calls"
        self.rendered = 0
        self.env = {
            **{name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"},
            "PYTHONPYCACHEPREFIX": str(root / "compiled"),
            "PATH": f"{root / 'fake'}:{os.environ['PATH']}",
            "JOBSPEC_CLUSTERS": str(root / "clusters"),
            "JOBSPEC_RUNS": str(root / "runs"),
            "XDG_STATE_HOME": str(root / "state"),
        }
        self._write_inputs()
        self._write_fakes()
        self._write_runs()

    def _write_inputs(self) -> None:
        (self.root / "clusters").mkdir()
        (self.root / "clusters" / "bench.yaml").write_text(PROFILE.replace("RUNS", str(self.root / "runs")))
        (self.root / "one.yaml").write_text(SPEC)
        seeds = ", ".join(map(str, range(self.points)))
        (self.root / "sweep.yaml").write_text(f"{SPEC}sweep: {{grid: {{train.seed: [{seeds}]}}}}\n")

    def _write_fakes(self) -> None:
        ids = range(1000, 1000 + self.count)
        tail = f"RUNNING|{getpass.getuser()}|2026-01-01T00:00:00|n[1-4]|2026-01-01T00:00:00"
        (self.root / "squeue.txt").write_text(  # in the fields of `SQUEUE_FORMAT`
            "".join(f"{1000 + n}|{tail}|bench-{self.run_id(n)}|None\n" for n in range(self.count))
        )
        (self.root / "sacct.txt").write_text(
            "JobID|State|NodeList\n" + "".join(f"{job}|RUNNING|n[1-4]\n" for job in ids)
        )
        answers = {
            "squeue": f"cat {self.root / 'squeue.txt'}",
            "sacct": f"cat {self.root / 'sacct.txt'}",
            "sbatch": "echo Submitted batch job 1000",
            "srun": "true",
        }
        (self.root / "fake").mkdir()
        for name, answer in answers.items():
            path = self.root / "fake" / name
            path.write_text(f"#!/bin/sh\necho {name} >> {self.calls}\n{answer}\n")
            path.chmod(0o755)

    def _write_runs(self) -> None:
        """Runs as `submit` leaves them, from one that was rendered."""
        self.jobspec("render", "one.yaml", "--out", str(self.root / "template"))
        for number in range(self.count):
            run_id = self.run_id(number)
            folder = self.root / "runs" / "bench" / run_id
            metrics = folder / "attempts" / "1" / "metrics"
            metrics.mkdir(parents=True)
            shutil.copy(self.root / "template" / "plan.json", folder)
            (metrics / "metrics.jsonl").write_text('{"step": 3, "reward": 0.5}\n' * 3)
            record = {
                "version": 1,
                "run_id": run_id,
                "run_dir": str(folder),
                "cluster": "bench",
                "launcher": "slurm",
                "job_name": f"bench-{run_id}",
                "intent_time": 1.7e9,
                "submit_time": 1.7e9,
                "job_id": str(1000 + number),
                "mode": "srun",
            }
            (folder / "launch.json").write_text(json.dumps(record))

    def run_id(self, number: int, day: str = "20260101") -> str:
        return f"{day}-{number // 3600:02d}{number // 60 % 60:02d}{number % 60:02d}-{number:06x}"

    def end_runs(self, count: int) -> None:
        """Another folder of runs: so many that have ended and were judged."""
        template = next((self.root / "runs" / "bench").iterdir())
        for number in range(count):
            run_id = self.run_id(number, "20260102")
            folder = self.root / f"ended-{count}" / "bench" / run_id
            folder.mkdir(parents=True)
            os.link(template / "plan.json", folder / "plan.json")
            record = json.loads((template / "launch.json").read_text())
            (folder / "launch.json").write_text(json.dumps({**record, "run_id": run_id}))
            ended = {"state": "COMPLETED", "exit_code": 0}
            (folder / "scheduler.json").write_text(json.dumps(ended))
            report = {"result": "Pass", "level": "run", "reason": "", "run": {"scheduler": ended}}
            (folder / "report.json").write_text(json.dumps(report))

    def python(self, code: str, *argv: object) -> None:
        self._run([sys.executable, "-c", code, *map(str, argv)])

    def jobspec(self, *argv: str) -> str:
        program = Path(sys.executable).with_name("jobspec")
        return self._run([str(program), *argv])

    def status(self) -> None:
        """Of all live runs: those that a fake queue does not know would come from the index of ended ones."""
        live = self.jobspec("status", "--all").count(" RUNNING ")
        if live != self.count:
            raise SystemExit(f"{live} runs of {self.count} are RUNNING")

    def render(self, spec: str) -> None:
        self.rendered += 1
        self.jobspec("render", spec, "--out", str(self.root / f"out-{self.rendered}"))

    def _run(self, argv: list[str]) -> str:
        done = subprocess.run(argv, cwd=self.root, env=self.env, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise SystemExit(f"{argv} failed:\n{done.stdout[-2000:]}{done.stderr[-4000:]}")
        return done.stdout

    def measure(self, row: Row) -> None:
        self.calls.unlink(missing_ok=True)
        began, used = time.perf_counter(), _cpu_of_children()
        row.action()
        row.seconds.append(time.perf_counter() - began)
        row.cpu_s.append(_cpu_of_children() - used)
        row.calls = len(self.calls.read_text().splitlines()) if self.calls.exists() else 0


def _cpu_of_children() -> float:
    """Processor seconds of all ended children: what a busy machine does not stretch."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def rows(bench: Bench) -> list[Row]:
    """The rows of the table, in its order."""
    many, runs = bench.points, bench.count
    found = [
        Row(f"floor: python -c '{FLOOR}'", lambda: bench.python(FLOOR)),
        Row("jobspec --help", lambda: bench.jobspec("--help"), "0.05 s"),
        Row("jobspec validate, one Slurm job", lambda: bench.jobspec("validate", "one.yaml"), "0.18 s"),
        Row("jobspec render, one Slurm job", lambda: bench.render("one.yaml"), "0.30 s"),
        Row(f"jobspec render, sweep of {many} points", lambda: bench.render("sweep.yaml"), "2 s"),
        Row(f"jobspec status, {runs} live runs", bench.status, "0.1 s, 1 call"),
    ]
    for count, aim in ((runs, "0.1 s"), (10 * runs, "0.3 s")):
        bench.end_runs(count)
        folder = str(bench.root / f"ended-{count}")
        bench.jobspec("status", "--all", "--runs", folder)  # fills the index
        found.append(
            Row(
                f"jobspec status of {count} ended runs",
                lambda f=folder: bench.jobspec("status", "--runs", f),
                aim,
            )
        )
        found.append(
            Row(
                f"jobspec status --verdict fail of {count} ended",
                lambda f=folder: bench.jobspec("status", "--verdict", "fail", "--runs", f),
            )
        )
    if importlib.util.find_spec("submitit"):
        folder = bench.root / "submitit"
        found += [
            Row("submitit: import", lambda: bench.python("import submitit")),
            Row(f"submitit: map_array of {many}", lambda: bench.python(SUBMITIT_ARRAY, folder, many)),
            Row(f"submitit: state of {runs} jobs", lambda: bench.python(SUBMITIT_STATUS, folder, runs)),
        ]
    return found


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--repeat", type=int, default=5)
    parser.add_argument("--points", type=int, default=1000)
    parser.add_argument("--runs", type=int, default=1000)
    parser.add_argument("--folder", default="/dev/shm" if Path("/dev/shm").is_dir() else None)
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    if args.folder and not Path(args.folder).is_dir():
        parser.error(f"--folder: `{args.folder}` is no folder")
    with tempfile.TemporaryDirectory(prefix="jobspec-bench-", dir=args.folder) as folder:
        bench = Bench(Path(folder), args.points, args.runs)
        table = rows(bench)
        for repetition in range(args.repeat + 1):
            for row in table:
                bench.measure(row)
                if repetition == 0:
                    row.seconds.clear()
                    row.cpu_s.clear()
    if args.json:
        print(
            json.dumps(
                [{"name": r.name, "median_s": r.wall, "cpu_s": r.cpu, "calls": r.calls} for r in table]
            )
        )
        return 0
    load = os.getloadavg()[0]
    print(f"median of {args.repeat}, {os.cpu_count()} processors, load average {load:.1f}\n")
    print(f"{'':45} {'wall':>8} {'CPU':>8} {'calls':>6}  aim")
    for row in table:
        print(f"{row.name[:45]:45} {row.wall:6.3f} s {row.cpu:6.3f} s {row.calls:6}  {row.aim}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
