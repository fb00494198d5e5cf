"""Finds runs below folders of runs.

There is no index file: a run is a folder `<runs>/<name>/<run-id>`, and its id begins with the time of its
rendering. So a list needs one directory scan, and `last` needs no clock. The launch record belongs to the
launcher, the evidence to the report; nothing here knows a scheduler.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

from jobspec.disk import is_folder
from jobspec.finding import fail
from jobspec.runs.paths import RUN_ID, RunPaths
from jobspec.words import some

_KNOWN_FOLDERS = "run-folders"
_SECOND = len("20261130-120000")  # of a run id


class Found(NamedTuple):
    """A run as its folder's place tells of it. Text, no Path: a listing has thousands."""

    run_id: str
    name: str
    root: str

    @property
    def paths(self) -> RunPaths:
        return RunPaths(Path(self.root))


class RunStore:
    """Finds runs below one or more folders. Every call scans again; nothing is cached."""

    def __init__(self, *folders: str | Path) -> None:
        # A folder that is reached by two names, such as through a link to a home, has each run once.
        named = dict[str, Path]()
        for folder in folders:
            named.setdefault(os.path.realpath(folder), Path(folder).absolute())
        self.folders = tuple(named.values())

    def found(self) -> list[Found]:
        """All runs, newest first."""
        runs = {run.root: run for folder in self.folders for run in _scan(folder)}
        seconds = Counter(run_id[:_SECOND] for run_id, _, _ in runs.values())

        def age(run: Found) -> tuple[str, int, str]:
            # An id has the second; only for runs of one second the disk decides.
            run_id, _, root = run
            second = run_id[:_SECOND]
            return second, _written_ns(root) if seconds[second] > 1 else 0, run_id

        return sorted(runs.values(), key=age, reverse=True)

    def list(self) -> list[RunPaths]:
        """All runs, newest first."""
        return [run.paths for run in self.found()]

    def find(self, ref: str) -> RunPaths:
        """The run of `ref`: an id, the beginning of one, a directory, a name (its newest run), or `last`.

        Raises: JobspecError naming the candidates when none or several fit.
        """
        as_folder = _folder(ref)
        if as_folder is not None:
            return RunPaths(as_folder.absolute())
        runs = self.found()
        if not runs:
            raise fail("run.unknown", f"no run `{ref}`", why=self._where("no runs in"), fix=_FIND_FIX)
        if ref == "last":
            return runs[0].paths
        matches = [run for run in runs if run.run_id.startswith(ref)]
        exact = [run for run in matches if run.run_id == ref]
        if len(exact or matches) == 1:
            return (exact or matches)[0].paths
        named = _of_name(ref, runs)
        if named:
            return named[0].paths
        if matches:
            shown = some([f"`{run.run_id}` ({run.name})" for run in matches], 8)
            raise fail(
                "run.ambiguous",
                f"`{ref}` is the beginning of {len(matches)} run ids",
                why=f"candidates: {shown}",
                fix="give more characters of the id",
            )
        raise fail("run.unknown", f"no run `{ref}`", why=self._nearest(ref, runs), fix=_FIND_FIX)

    def named(self, ref: str) -> tuple[RunPaths, ...]:
        """All runs of `ref`, newest first, where `find` takes it for a name; else none."""
        if ref == "last" or _folder(ref) is not None:
            return ()
        runs = self.found()
        matches = [run for run in runs if run.run_id.startswith(ref)]
        is_id = len(matches) == 1 or any(run.run_id == ref for run in matches)
        return () if is_id else tuple(run.paths for run in _of_name(ref, runs))

    def _nearest(self, ref: str, runs: Iterable[Found]) -> str:
        import difflib

        ids = [run.run_id for run in runs]
        names = dict.fromkeys(run.name for run in runs)
        close = difflib.get_close_matches(ref, [*names, *ids], n=3, cutoff=0.6)
        if close:
            return "did you mean " + " or ".join(f"`{item}`" for item in close)
        return self._where(f"no match among {len(ids)} runs in")

    def _where(self, text: str) -> str:
        return f"{text} " + ", ".join(f"`{folder}`" for folder in self.folders)


def _of_name(name: str, runs: Iterable[Found]) -> list[Found]:
    return [run for run in runs if run.name == name]


def _written_ns(root: str) -> int:
    """When the run was rendered; its spec is never written again."""
    try:
        return os.stat(f"{root}/spec.yaml").st_mtime_ns  # noqa: PTH116
    except OSError:
        return 0


_FIND_FIX = "run `jobspec status` to list the runs, or name another folder by `--runs DIR` or `JOBSPEC_RUNS`"


def _scan(folder: Path) -> Iterator[Found]:
    """Runs at `<folder>/<name>/<run-id>`: two levels of scandir, no file is opened."""
    try:
        named = [entry for entry in os.scandir(folder) if _is_dir(entry)]
    except (FileNotFoundError, NotADirectoryError):
        return
    except PermissionError as problem:
        raise fail("run.folder-unreadable", f"`{folder}` cannot be listed", why=str(problem)) from problem
    for above in named:
        try:
            ids = [name for name in os.listdir(above) if RUN_ID.match(name)]  # noqa: PTH208
        except (PermissionError, FileNotFoundError):  # another user's, or gone meanwhile
            continue
        yield from (Found(run_id, above.name, f"{above.path}/{run_id}") for run_id in ids)


def _is_dir(entry: os.DirEntry[str]) -> bool:
    try:
        return entry.is_dir()
    except OSError:  # a link to itself, or into a folder that may not be entered
        return False


def open_store(runs: str | None = None) -> RunStore:
    """The runs that RUN arguments refer to: in folder `runs`, JOBSPEC_RUNS, or every folder submitted to.

    Raises: JobspecError when `runs` is no folder. The folder of JOBSPEC_RUNS is made for the first run.
    """
    if runs and not is_folder(os.path.expanduser(runs)):  # noqa: PTH111 - may stay relative
        raise fail("usage.arguments", f"there is no folder `{runs}`", fix="check `--runs`")
    folder = runs or os.environ.get("JOBSPEC_RUNS")
    if folder:
        return RunStore(Path(folder).expanduser())
    return RunStore(Path("runs"), *known_folders(os.environ))


def state_folder(env: Mapping[str, str]) -> Path:
    """The folder for files of the user that belong to no run (XDG base directory specification)."""
    base = env.get("XDG_STATE_HOME") or str(Path(env.get("HOME") or "~").expanduser() / ".local" / "state")
    return Path(base) / "jobspec"


def known_folders(env: Mapping[str, str]) -> list[Path]:
    """Existing folders that this user has submitted runs to, newest first."""
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
        # Lines are added, never rewritten: of two submissions at once, one would drop the line of the other.
        with file.open("a", encoding="utf-8") as lines:
            lines.write(f"{folder}\n")
    except OSError:
        return


def _folder(ref: str) -> Path | None:
    """The run folder of this path; None for what is none, or can be no path. Raises: PermissionError."""
    try:
        path = Path(ref).expanduser()
        is_run = (path / "plan.json").is_file() or (path / "points").is_dir()
    except PermissionError:
        raise
    except (OSError, RuntimeError, ValueError):  # too long, `~` of nobody, NUL
        return None
    return path if is_run else None
