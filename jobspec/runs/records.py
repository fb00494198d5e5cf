"""The records of a run folder about its start and its results: checked when read, replaced in one step."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

from jobspec.finding import JobspecError, fail
from jobspec.runs.paths import STEP_SCRIPTS, RunPaths
from jobspec.runtime.base.run_files import parse_json, read_text
from jobspec.runtime.base.safe_write import write_text

LAUNCH_VERSION = 1


@dataclass(frozen=True)
class Launch:
    """`launch.json`: how a run was started, enough to find its job again from another process.

    The file is written with an empty `job_id` before the scheduler is asked (the intent), and again after the
    answer. A lost answer is then looked up by `job_name`, and no job is submitted twice.
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
    master: str = ""
    process_start: str = ""  # clock ticks after boot at which the process started
    boot_id: str = ""
    allocation: str = ""  # the Slurm job in whose nodes a process of this machine runs (`--here`)
    version: int = LAUNCH_VERSION
    root: str = ""  # where the record was read: the run directory as this machine sees it; never written

    @property
    def submitted(self) -> bool:
        return bool(self.job_id)


_Kind = type | tuple[type, ...]
_KINDS: Mapping[str, _Kind] = {"str": str, "int": int, "float": (int, float)}
_LAUNCH = {item.name: _KINDS[str(item.type)] for item in fields(Launch)}
_LEGAL = {"launcher": ("slurm", "local"), "mode": tuple(STEP_SCRIPTS)}
JOB_ID = re.compile(r"[0-9]{0,10}")  # of Slurm and of a process: 32 bits
_MOST = 1e12  # no time, count or exit code of a run is larger, and a larger one may not fit where it is used
_SCHEDULER: Mapping[str, _Kind] = {
    "state": str,
    "reason": str,
    "exit_code": int,
    "nodes": str,
    "restarts": int,
    "start": str,
    "raw": str,
    "tasks": dict,
}
_RESULTS: Mapping[str, _Kind] = {"outcome": str, "exit_code": int}


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
    values = _fitting(run.state, data, _LAUNCH)
    for key, legal in _LEGAL.items():
        if key in values and values[key] not in legal:
            raise damaged(run.state, f"`{key}` cannot be {_shown(values[key])}")
    for key in ("job_id", "allocation"):
        if not JOB_ID.fullmatch(values.get(key, "")):
            raise damaged(run.state, f"`{key}` is no number: {_shown(values[key])}")
    try:
        return Launch(**{**values, "root": str(run.root)})
    except TypeError as problem:
        raise damaged(run.state, str(problem)) from problem


def write_launch(run: RunPaths, launch: Launch) -> None:
    """Replace the launch record. The place of the run directory is not part of it: folders move."""
    write_json(run.state, {key: value for key, value in asdict(launch).items() if key != "root"})


def write_json(path: Path, data: Mapping[str, Any]) -> None:
    """Replace a JSON file in one step: a reader sees the old or the new text, never half of it."""
    write_text(path, json.dumps(data, indent=2, sort_keys=True) + "\n")


def read_scheduler(run: RunPaths) -> dict[str, Any] | None:
    """The recorded final state of the run's job, or None while it is not known.

    Raises: JobspecError when the file is damaged.
    """
    data = _read_json(run.scheduler)
    if data is not None:
        _fitting(run.scheduler, data, _SCHEDULER)
        for index, task in (data.get("tasks") or {}).items():
            if not JOB_ID.fullmatch(index) or not isinstance(task, dict) or task.get("tasks"):
                raise damaged(run.scheduler, f"`tasks` cannot hold {_shown(index)}")
            _fitting(run.scheduler, task, _SCHEDULER)
    return data


def read_results(run: RunPaths) -> dict[str, Any] | None:
    """`results.json` of the newest attempt; None while that one has not ended by itself, or never did.

    An older attempt says nothing of a run that was started again. The first version of an attempt, written
    before its files are collected, is no end of one that went well.
    Raises: JobspecError when the file is damaged.
    """
    attempts = run.attempts()
    path = run.attempt(attempts[-1]) / "results.json" if attempts else None
    results = _read_json(path) if path is not None else None
    if path is None or results is None:
        return None
    _fitting(path, results, _RESULTS)
    return None if results.get("collecting") and results.get("outcome") == "ok" else results


def _fitting(path: Path, data: Mapping[str, Any], kinds: Mapping[str, _Kind]) -> dict[str, Any]:
    """The known keys of a record; null counts as missing in all but the launch record, which has none.

    Raises: JobspecError for a value of another kind, a number out of all bounds, or a text that holds NUL.
    """
    values = {key: data[key] for key in kinds if key in data and (data[key] is not None or kinds is _LAUNCH)}
    for key, value in values.items():
        fits = isinstance(value, kinds[key]) and not isinstance(value, bool)
        if isinstance(value, int | float):
            fits &= abs(value) < _MOST  # neither is NaN
        if not fits or (isinstance(value, str) and "\0" in value):
            raise damaged(path, f"`{key}` cannot be {_shown(value)}")
    return values


def _shown(value: object) -> str:
    """A wrong value for a message; of a list or an object its type, for it may be of any depth."""
    return type(value).__name__ if isinstance(value, list | dict) else repr(value)[:60]


def _read_json(path: Path) -> dict[str, Any] | None:
    try:
        data = parse_json(read_text(path))
    except FileNotFoundError:
        return None
    except OSError as problem:
        raise damaged(path, problem.strerror or str(problem)) from problem
    except ValueError as problem:
        raise damaged(path, str(problem)) from problem
    if not isinstance(data, dict):
        raise damaged(path, f"an object was expected, not {type(data).__name__}")
    return data


def damaged(path: Path, why: str) -> JobspecError:
    """The error for a file of a run that cannot be read, or says what no run says."""
    return fail(
        "run.damaged-file",
        f"`{path.name}` cannot be read",
        why=why,
        fix="restore the file, make it readable, or remove the run directory",
        file=str(path),
    )


def repeats(lock: Path, names: Iterable[str]) -> dict[str, bytes]:
    """The notes beside a new run's plans, those of its points too: which run it repeats, that of `lock`."""
    folders = [Path(name).parent for name in names if Path(name).name == "plan.json"]
    return {
        str(RunPaths(folder).reproduces): json.dumps(
            {"v": 1, "lock": str(lock), "folder": str(lock.parent / folder)}
        ).encode()
        for folder in folders
    }
