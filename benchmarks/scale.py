"""Commands on very many runs, on a run of very many files, and on one of very many nodes.

    python benchmarks/scale.py [--runs 10000] [--files 100000] [--nodes 512] [--folder DIR] [--json]

One small run on this machine is made and judged, then its folder is filled: with other runs that have ended
(a tenth of `--runs`, then all of them), with files that its command might have left, or with the logs of more
nodes, 1 MiB each. Whole processes are measured: seconds, CPU seconds, and the most memory. Modules are
compiled once, as an installation has them.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from jobspec.runtime.base.redact import Redactor
from jobspec.runtime.node.collect import Folders, collect

SPEC = """\
version: 1
name: many
framework: command
launch: {mode: srun}
train: {command: [bash, -c, "echo hi; mkdir out; echo 1 > out/one"]}
artifacts: {collect: ["out/**"]}
"""
LOG_BYTES = 1 << 20
LINE = b"(TrainWorker pid=1234) INFO 11-29 12:00:00 worker.py:321] sent 16 requests to engine 2\n"


@dataclass(frozen=True)
class Measured:
    what: str
    seconds: float
    cpu_s: float
    memory_mib: float
    exit_code: int


class Scale:
    """One run below `root/runs`, and copies of it."""

    def __init__(self, root: Path) -> None:
        self.root, self.runs = root, root / "runs"
        self.env = {
            **{name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"},
            "PYTHONPYCACHEPREFIX": str(root / "compiled"),
            "JOBSPEC_RUNS": str(self.runs),
            "XDG_STATE_HOME": str(root / "state"),
        }
        (root / "spec.yaml").write_text(SPEC)
        self.measure("the run itself", "run", "spec.yaml")
        (self.run,) = self.runs.glob("many/*")

    def measure(self, what: str, *argv: str) -> Measured:
        program = str(Path(sys.executable).with_name("jobspec"))
        began = time.perf_counter()
        with (self.root / "printed").open("wb") as out:
            child = subprocess.Popen(
                [program, *argv], cwd=self.root, env=self.env, stdout=out, stderr=subprocess.STDOUT
            )
            _, status, used = os.wait4(child.pid, 0)
        child.returncode = os.waitstatus_to_exitcode(status)
        seconds = time.perf_counter() - began
        if child.returncode not in (0, 1, 3):
            raise SystemExit((self.root / "printed").read_text()[-3000:])
        cpu = used.ru_utime + used.ru_stime
        return Measured(what, seconds, cpu, used.ru_maxrss / 1024, child.returncode)

    def copy(self, name: str) -> Path:
        """Another run of the same files, which bears its own id."""
        folder = self.run.with_name(name)
        shutil.copytree(self.run, folder, symlinks=True)
        record = json.loads((folder / "launch.json").read_text())
        record |= {"run_id": name, "run_dir": str(folder)}
        (folder / "launch.json").write_text(json.dumps(record))
        return folder

    def many_runs(self, count: int) -> Iterator[Measured]:
        start = datetime(2026, 1, 1, tzinfo=UTC)
        for number in range(count):
            second = start + timedelta(seconds=number)
            folder = self.runs / "many" / f"{second:%Y%m%d-%H%M%S}-{number:06x}"
            folder.mkdir()
            for name in ("plan.json", "launch.json", "report.json", "scheduler.json"):
                if (self.run / name).exists():
                    os.link(self.run / name, folder / name)
        yield self.measure(f"status --all of {count} runs, first time", "status", "--all")
        yield self.measure(f"status --all of {count} runs, again", "status", "--all")
        yield self.measure(f"status of {count} runs", "status")
        yield self.measure(f"the run's name among {count}", "status", "many")
        for path in self.runs.glob("many/202601*"):
            shutil.rmtree(path)

    def many_files(self, count: int) -> Iterator[Measured]:
        folder = self.copy("20260102-000000-aaaaaa")
        for number in range(count):
            path = folder / "attempts/1/out" / f"{number % 100}" / f"{number}.json"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text('{"step": 1}\n')
        yield from self.commands(folder, f"{count} files")
        yield collected(folder, count)
        shutil.rmtree(folder)

    def many_nodes(self, count: int) -> Iterator[Measured]:
        folder = self.copy("20260103-000000-bbbbbb")
        attempt = folder / "attempts/1"
        results = json.loads((attempt / "results.json").read_text())
        (head,) = results["nodes"]
        results["nodes"] = [{**head, "name": f"n{number}", "index": number} for number in range(count)]
        (attempt / "results.json").write_text(json.dumps(results))
        for number in range(count):
            logs = attempt / "logs" / f"n{number}"
            logs.mkdir()
            (logs / f"command-{number}.log").write_bytes(LINE * (LOG_BYTES // len(LINE)))
        yield from self.commands(folder, f"{count} nodes")
        shutil.rmtree(folder)

    def commands(self, folder: Path, of: str) -> Iterator[Measured]:
        yield self.measure(f"status of a run of {of}", "status", str(folder))
        yield self.measure(f"report of a run of {of}", "report", str(folder))
        yield self.measure(f"triage of a run of {of}", "triage", str(folder))
        yield self.measure(f"logs of a run of {of}", "logs", str(folder))
        yield self.measure(
            f"judge of a folder of {of}", "judge", str(folder / "attempts"), "--framework", "command"
        )


def collected(folder: Path, count: int) -> Measured:
    """The runtime's own collection of these files, in this process."""
    began, used = time.perf_counter(), time.process_time()
    folders = Folders(str(folder / "attempts/1"), "", "")
    target = folder / "attempts/1/artifacts"
    found = collect(["out/**"], folders, target, Redactor({}), max_bytes=2 << 30, deadline_s=600)
    assert len(found.files) >= count, found
    spent = time.process_time() - used
    return Measured(f"collection of {count} files", time.perf_counter() - began, spent, 0, 0)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--runs", type=int, default=10_000)
    parser.add_argument("--files", type=int, default=100_000)
    parser.add_argument("--nodes", type=int, default=512)
    parser.add_argument("--folder", type=Path)
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    rows: list[Measured] = []
    with tempfile.TemporaryDirectory(prefix="jobspec-scale-", dir=args.folder) as folder:
        scale = Scale(Path(folder))
        parts = (
            *(scale.many_runs(count) for count in (args.runs // 10, args.runs)),
            *(scale.many_files(args.files), scale.many_nodes(args.nodes)),
        )
        for part in parts:
            for row in part:
                rows.append(row)
                print(
                    f"{row.what:45} {row.seconds:7.2f} s {row.cpu_s:7.2f} s CPU {row.memory_mib:6.0f} MiB",
                    flush=True,
                )
    if args.json:
        print(json.dumps([asdict(row) for row in rows]))


if __name__ == "__main__":
    main()
