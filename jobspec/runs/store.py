"""Run directories: one object owns every file name (design section 6), and finds runs again.

There is no index file: a run is a folder `<runs>/<name>/<run-id>`, and its id begins with the time it
was made, so listing is one directory scan and `last` needs no clock. The launch record belongs to the
launcher, the evidence to the report; nothing here knows a scheduler.
"""

from __future__ import annotations

import contextlib
import difflib
import json
import os
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

from jobspec.finding import fail
from jobspec.plan import build

RUN_ID = re.compile(r"^\d{8}-\d{6}-[0-9a-f]{6}$")
SCRIPT_LOGS = re.compile(r"\d+(?:-\d+)?-logs$")  # below `logs`: what a framework's own batch script wrote
LAUNCH_VERSION = 1
_KNOWN_FOLDERS = "run-folders"


@dataclass(frozen=True)
class RunPaths:
    """The files of one run. Nobody else builds a path inside a run directory."""

    root: Path

    @property
    def run_id(self) -> str:
        return self.root.name

    @property
    def name(self) -> str:
        """The spec's name: that of the folder above, or of a run elsewhere (`render --out`) the plan's."""
        if self.standard:
            return self.root.parent.name
        try:
            plan = json.loads(self.plan.read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return ""
        return str(plan.get("name", "")) if isinstance(plan, dict) else ""

    @property
    def standard(self) -> bool:
        """True for `<runs>/<name>/<run-id>`; `render --out` writes to any folder, found by its path alone."""
        return RUN_ID.match(self.root.name) is not None

    @property
    def ref(self) -> str:
        """What a user types to name this run."""
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
    def job(self) -> Path:
        return self.root / "job.sbatch"

    @property
    def attach(self) -> Path:
        return self.root / "attach.sh"

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

    def attempt(self, number: int) -> Path:
        return self.root / "attempts" / str(number)

    def attempts(self) -> list[int]:
        folder = self.root / "attempts"
        return sorted(int(p.name) for p in folder.iterdir() if p.name.isdigit()) if folder.is_dir() else []

    @property
    def points_index(self) -> Path:
        """What the points of a sweep set, and what became of those that are not run here."""
        return self.root / "points.json"

    @property
    def is_sweep(self) -> bool:
        """True also when every point has finished in an earlier run, and none has a folder here."""
        return self.points_index.is_file() or self.points_dir.is_dir()

    def points(self) -> list[RunPaths]:
        """The points of a sweep in order, each a run directory of its own; empty for a single run."""
        if not self.points_dir.is_dir():
            return []
        numbers = sorted(int(p.name) for p in self.points_dir.iterdir() if p.name.isdigit())
        return [RunPaths(self.points_dir / str(number)) for number in numbers]

    def job_logs(self) -> list[Path]:
        """What the batch script printed, oldest first: one file per job, appended over its requeues."""
        written = {}
        for path in self.root.glob("job-*.log"):
            with contextlib.suppress(FileNotFoundError):  # gone since it was listed
                written[path] = path.stat().st_mtime
        return sorted(written, key=lambda path: (written[path], path.name))


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


@dataclass(frozen=True)
class Launch:
    """`launch.json`: how a run was started, enough to find its job again from another process.

    It is written with an empty `job_id` before the scheduler is asked (the intent) and again after the
    answer, so that a lost answer is looked up by `job_name` instead of submitted twice.
    """

    run_id: str
    run_dir: str  # as the compute nodes see it
    cluster: str
    launcher: str  # slurm | local
    job_name: str
    intent_time: float  # seconds since the epoch
    job_id: str = ""  # Slurm's job id, or a process id
    submit_time: float = 0.0
    mode: str = "ray"
    array: str = ""
    login: str = "here"
    user: str = ""
    jump: str = ""
    process_start: str = ""  # clock ticks after boot at which the process started
    boot_id: str = ""
    version: int = LAUNCH_VERSION
    root: str = ""  # where the record was read: the run directory as this machine sees it; never written

    @property
    def submitted(self) -> bool:
        return bool(self.job_id)


def read_launch(run: RunPaths) -> Launch | None:
    """The launch record, or None when the run was only rendered.

    Raises: JobspecError when the file is damaged or was written by a newer jobspec.
    """
    data = _read_json(run.state)
    if data is None:
        return None
    if data.get("version") != LAUNCH_VERSION:
        raise fail(
            "run.launch-version",
            f"`launch.json` has version {data.get('version')!r}, this jobspec reads {LAUNCH_VERSION}",
            fix="use the jobspec version that submitted the run",
            file=str(run.state),
        )
    known = {item.name for item in fields(Launch)}
    try:
        given = {key: value for key, value in data.items() if key in known}
        return build(Launch, {**given, "root": str(run.root)})
    except ValueError as problem:
        raise _damaged(run.state, str(problem)) from problem


def write_launch(run: RunPaths, launch: Launch) -> None:
    """Replace the launch record. Where the run directory lies is not part of it: folders move."""
    write_json(run.state, {key: value for key, value in asdict(launch).items() if key != "root"})


def write_json(path: Path, data: Mapping[str, Any]) -> None:
    """Replace a JSON file in one step: a reader sees the old or the new text, never half of it."""
    write_text(path, json.dumps(data, indent=2, sort_keys=True) + "\n")


def write_text(path: Path, text: str) -> None:
    """`write_json` for any text."""
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(f".{path.name}.{os.getpid()}")
    partial.write_text(text, encoding="utf-8")
    partial.replace(path)


def read_scheduler(run: RunPaths) -> dict[str, Any] | None:
    """The recorded final state of the run's job, or None while it is not known."""
    return _read_json(run.scheduler)


def read_results(run: RunPaths) -> dict[str, Any] | None:
    """`results.json` of the newest attempt that has one; None when no attempt ended by itself."""
    for number in reversed(run.attempts()):
        found = _read_json(run.attempt(number) / "results.json")
        if found is not None:
            return found
    return None


def _read_json(path: Path) -> dict[str, Any] | None:
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return None
    except (ValueError, NotADirectoryError) as problem:
        raise _damaged(path, str(problem)) from problem
    if not isinstance(data, dict):
        raise _damaged(path, f"an object was expected, not {type(data).__name__}")
    return data


def _damaged(path: Path, why: str) -> Exception:
    return fail(
        "run.damaged-file",
        f"`{path.name}` cannot be read",
        why=why,
        fix="restore the file, or remove the run directory",
        file=str(path),
    )


class RunStore:
    """Finds runs below one or more folders. Every call scans anew; nothing is cached."""

    def __init__(self, *folders: str | Path) -> None:
        self.folders = tuple(dict.fromkeys(Path(folder).absolute() for folder in folders))

    def list(self) -> list[RunPaths]:
        """All runs, newest first."""
        found = {run.root: run for folder in self.folders for run in _scan(folder)}
        seconds = Counter(_second(run) for run in found.values())

        def age(run: RunPaths) -> tuple[str, int, str]:
            # An id tells the second; only runs of the same one are looked at.
            written = _written_ns(run) if seconds[_second(run)] > 1 else 0
            return _second(run), written, run.run_id

        return sorted(found.values(), key=age, reverse=True)

    def find(self, ref: str) -> RunPaths:
        """The run that `ref` names: an id, a unique prefix of one, a directory, or `last`.

        Raises: JobspecError naming the candidates when none or several fit.
        """
        as_folder = Path(ref).expanduser()
        if (as_folder / "plan.json").is_file() or (as_folder / "points").is_dir():
            return RunPaths(as_folder.absolute())
        runs = self.list()
        if not runs:
            raise fail("run.unknown", f"no run `{ref}`", why=self._where("no runs in"), fix=_FIND_FIX)
        if ref == "last":
            return runs[0]
        matches = [run for run in runs if run.run_id.startswith(ref)]
        exact = [run for run in matches if run.run_id == ref]
        if len(exact or matches) == 1:
            return (exact or matches)[0]
        if matches:
            shown = ", ".join(f"`{run.run_id}` ({run.root.parent.name})" for run in matches[:8])
            more = f" and {len(matches) - 8} more" if len(matches) > 8 else ""
            raise fail(
                "run.ambiguous",
                f"`{ref}` is the beginning of {len(matches)} run ids",
                why=f"candidates: {shown}{more}",
                fix="give more characters of the id",
            )
        raise fail("run.unknown", f"no run `{ref}`", why=self._nearest(ref, runs), fix=_FIND_FIX)

    def _nearest(self, ref: str, runs: Iterable[RunPaths]) -> str:
        ids = [run.run_id for run in runs]
        close = difflib.get_close_matches(ref, ids, n=3, cutoff=0.6)
        if close:
            return "did you mean " + " or ".join(f"`{item}`" for item in close)
        return self._where(f"none of {len(ids)} runs fits in")

    def _where(self, text: str) -> str:
        return f"{text} " + ", ".join(f"`{folder}`" for folder in self.folders)


def _second(run: RunPaths) -> str:
    return run.run_id[:15]


def _written_ns(run: RunPaths) -> int:
    """When the run was rendered; its spec is never written again."""
    try:
        return run.spec.stat().st_mtime_ns
    except OSError:
        return 0


_FIND_FIX = "`jobspec status` lists the runs; name another folder by `--runs DIR` or `JOBSPEC_RUNS`"


def _scan(folder: Path) -> Iterator[RunPaths]:
    """Runs at `<folder>/<name>/<run-id>`: two levels of scandir, no file is opened."""
    try:
        names = [entry.path for entry in os.scandir(folder) if _is_dir(entry)]
    except (FileNotFoundError, NotADirectoryError):
        return
    except PermissionError as problem:
        raise fail("run.folder-unreadable", f"`{folder}` cannot be listed", why=str(problem)) from problem
    for name in names:
        try:
            found = [entry.path for entry in os.scandir(name) if RUN_ID.match(entry.name)]
        except (PermissionError, FileNotFoundError):  # another user's, or gone meanwhile
            continue
        yield from (RunPaths(Path(path)) for path in found)


def _is_dir(entry: os.DirEntry[str]) -> bool:
    try:
        return entry.is_dir()
    except OSError:  # a link to itself, or into a folder that may not be entered
        return False


def state_folder(env: Mapping[str, str]) -> Path:
    """Where jobspec keeps what belongs to the user and not to a run (XDG base directory specification)."""
    base = env.get("XDG_STATE_HOME") or str(Path(env.get("HOME") or "~").expanduser() / ".local" / "state")
    return Path(base) / "jobspec"


def known_folders(env: Mapping[str, str]) -> list[Path]:
    """Folders that this user has submitted runs to, newest first; those that are gone are left out."""
    try:
        lines = (state_folder(env) / _KNOWN_FOLDERS).read_text(encoding="utf-8").splitlines()
    except OSError:
        return []
    return [path for path in dict.fromkeys(map(Path, reversed(lines))) if path.is_dir()]


def remember_folder(folder: Path, env: Mapping[str, str]) -> None:
    """Note a folder of runs so that `status` and `last` find it from any working directory.

    A home that cannot be written costs this convenience and nothing else.
    """
    if folder in known_folders(env)[:1]:
        return
    file = state_folder(env) / _KNOWN_FOLDERS
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        # Added and never rewritten: of two submissions at once one would drop the other's.
        with file.open("a", encoding="utf-8") as lines:
            lines.write(f"{folder}\n")
    except OSError:
        return
