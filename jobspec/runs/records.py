"""The records of a run folder about its start and its results: checked when read, replaced in one step."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

from jobspec.finding import fail
from jobspec.runs.paths import RunPaths
from jobspec.runtime.base.run_files import UnfitFileError, read_text

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
    process_start: str = ""  # clock ticks after boot at which the process started
    boot_id: str = ""
    version: int = LAUNCH_VERSION
    root: str = ""  # where the record was read: the run directory as this machine sees it; never written

    @property
    def submitted(self) -> bool:
        return bool(self.job_id)


_KINDS: Mapping[str, type | tuple[type, ...]] = {"str": str, "int": int, "float": (int, float)}
_LAUNCH = {item.name: _KINDS[str(item.type)] for item in fields(Launch)}


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
    values = {key: data[key] for key in _LAUNCH if key in data}
    for key, value in values.items():
        if not isinstance(value, _LAUNCH[key]) or isinstance(value, bool):
            raise _damaged(run.state, f"`{key}` cannot be {value!r}")
    try:
        return Launch(**{**values, "root": str(run.root)})
    except TypeError as problem:
        raise _damaged(run.state, str(problem)) from problem


def write_launch(run: RunPaths, launch: Launch) -> None:
    """Replace the launch record. The place of the run directory is not part of it: folders move."""
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
        results = _read_json(run.attempt(number) / "results.json")
        if results is not None:
            return results
    return None


def _read_json(path: Path) -> dict[str, Any] | None:
    try:
        data = json.loads(read_text(path))
    except FileNotFoundError:
        return None
    except (ValueError, NotADirectoryError, UnfitFileError) as problem:
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
