"""The names of a run folder's files: one object owns them all."""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from jobspec.runtime.base.run_files import parse_json, read_text

RUN_ID = re.compile(r"[0-9]{8}-[0-9]{6}-[0-9a-f]{6}\Z")
NUMBER = re.compile(r"[0-9]{1,9}")  # the name of an attempt or a point

SCRIPT_LOGS = re.compile(r"\d+(?:-\d+)?-logs$")  # below `logs`: the files of a framework's own batch script

# The script of the step in a run directory, by mode.
STEP_SCRIPTS = {"ray": "ray.sub", "srun": "srun.sh", "upstream": "upstream.sh"}


@dataclass(frozen=True)
class RunPaths:
    """The files of one run. Nobody else builds a path inside a run directory."""

    root: Path

    @property
    def run_id(self) -> str:
        return self.root.name

    @property
    def name(self) -> str:
        """The spec's name: the folder above has it, for a run elsewhere (`render --out`) the plan."""
        if self.standard:
            return self.root.parent.name
        try:
            plan = parse_json(read_text(self.plan))
        except (OSError, ValueError):
            return ""
        name = plan.get("name") if isinstance(plan, dict) else None
        return name if isinstance(name, str) else ""

    @property
    def standard(self) -> bool:
        """True for `<runs>/<name>/<run-id>`. `render --out` writes to any folder, known by its path alone."""
        return RUN_ID.match(self.root.name) is not None

    @property
    def ref(self) -> str:
        """The name of this run for a user to type."""
        return self.run_id if self.standard else str(self.root)

    @property
    def spec(self) -> Path:
        return self.root / "spec.yaml"

    @property
    def lock(self) -> Path:
        return self.root / "spec.lock.yaml"

    @property
    def plan(self) -> Path:
        return self.root / "plan.json"

    @property
    def site(self) -> Path:
        """The site profile that the folder was rendered for."""
        return self.root / "site.yaml"

    @property
    def forecast(self) -> Path:
        """What the queue said at submission."""
        return self.root / "forecast.json"

    @property
    def job(self) -> Path:
        return self.root / "job.sbatch"

    @property
    def runtime(self) -> Path:
        return self.root / "runtime.pyz"

    @property
    def patches(self) -> Path:
        return self.root / "patches"

    @property
    def points_dir(self) -> Path:
        return self.root / "points"

    @property
    def artifacts(self) -> Path:
        return self.root / "artifacts"

    @property
    def manifest(self) -> Path:
        return self.root / "artifacts" / "manifest.json"

    @property
    def state(self) -> Path:
        """Job id, launcher and submit time; no secrets."""
        return self.root / "launch.json"

    @property
    def scheduler(self) -> Path:
        """The job's final state, once it is known."""
        return self.root / "scheduler.json"

    @property
    def exit_file(self) -> Path:
        """The exit code of a job, or of a point, that no scheduler records."""
        return self.root / "job-exit"

    @property
    def reproduces(self) -> Path:
        """Which run this one repeats, where `reproduce` made it."""
        return self.root / "reproduces.json"

    def attempt(self, number: int) -> Path:
        return self.root / f"attempts/{number}"

    def attempts(self) -> list[int]:
        """The numbers in order. A link is no attempt: it may lead anywhere, or back to another one."""
        with (
            contextlib.suppress(FileNotFoundError, NotADirectoryError),
            os.scandir(f"{self.root}/attempts") as entries,
        ):
            found = [entry for entry in entries if NUMBER.fullmatch(entry.name)]
            return sorted(int(entry.name) for entry in found if not entry.is_symlink())
        return []

    @property
    def points_index(self) -> Path:
        """The settings of a sweep's points, and the state of points that do not run here."""
        return self.root / "points.json"

    @property
    def is_sweep(self) -> bool:
        """Whether the run is a sweep, even one without folders since all points have finished before."""
        return self.points_index.is_file() or self.points_dir.is_dir()

    @property
    def sweep(self) -> RunPaths | None:
        """The sweep that the run is a point of."""
        return RunPaths(self.root.parent.parent) if self.root.parent.name == "points" else None

    def points(self) -> list[RunPaths]:
        """The points of a sweep in order, each a run directory of its own; empty for a single run."""
        return [RunPaths(self.points_dir / str(number)) for number in _numbers(f"{self.root}/points")]

    def job_logs(self) -> list[Path]:
        """The output of the batch script, oldest first: one file per job, continued over its requeues."""
        written = {}
        for path in self.root.glob("job-*.log"):
            with contextlib.suppress(OSError):  # gone since it was listed, or a link to itself
                written[path] = path.stat().st_mtime
        return sorted(written, key=lambda path: (written[path], path.name))


def _numbers(folder: str) -> list[int]:
    """The entries of a folder whose names are numbers, in order. Text, no Path: `status` needs thousands."""
    try:
        return sorted(int(name) for name in os.listdir(folder) if NUMBER.fullmatch(name))  # noqa: PTH208
    except (FileNotFoundError, NotADirectoryError):
        return []


def array_ranges(numbers: Iterable[int]) -> str:
    """Numbers as Slurm's `--array` and people write them.

    >>> array_ranges([0, 1, 2, 5])
    '0-2,5'
    """
    ranges: list[list[int]] = []
    for number in sorted(numbers):
        if ranges and ranges[-1][1] == number - 1:
            ranges[-1][1] = number
        else:
            ranges.append([number, number])
    return ",".join(f"{first}-{last}" if first != last else f"{first}" for first, last in ranges)
