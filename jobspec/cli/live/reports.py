"""Reports of runs that nobody has followed to their end: written by the next command that sees the end."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from jobspec.finding import JobspecError
from jobspec.runs.owner import owner
from jobspec.runs.paths import RunPaths
from jobspec.runtime.base.run_files import parse_json, read_text
from jobspec.verdict import EXIT_CODES, Result

BUDGET_S = 5.0  # for the reports of one command: thousands of old runs must not hold up `status`
_FRAMEWORK = re.compile(r'^  "framework": "([\w.-]+)"', re.MULTILINE)
_LEVEL = re.compile(r'^    "level": "([\w.-]+)"', re.MULTILINE)


def is_reported(run: RunPaths) -> bool:
    """Whether a report of the ended run is there: one from before the end may lack everything.

    One that was begun before the end and written after it knows no end, or another one.
    """
    try:
        ended = os.stat(f"{run.root}/scheduler.json").st_mtime_ns  # noqa: PTH116
        written = os.stat(f"{run.root}/report.json").st_mtime_ns  # noqa: PTH116
    except OSError:
        return False
    if written < ended:
        return False
    run_data = _json(run.root / "report.json").get("run")
    scheduler = run_data.get("scheduler") if isinstance(run_data, dict) else None
    if not isinstance(scheduler, dict):  # the table of a sweep
        return True
    return bool(scheduler.get("state") == _json(run.scheduler).get("state"))


def write_missing(runs: Iterable[RunPaths], problems: dict[RunPaths, str], budget_s: float = BUDGET_S) -> int:
    """Write the reports of ended runs that have none; how many are left for the next time.

    A run of somebody else and one in a read-only folder stay as they are. `problems` takes why one could not
    be judged: no run, however odd, may hide the others.
    """
    until, left = time.monotonic() + budget_s, 0
    for run in runs:
        if is_reported(run) or owner(run.root) or not os.access(run.root, os.W_OK):
            continue
        if time.monotonic() > until:
            left += 1
            continue
        try:
            _write_and_tell(run)
        except JobspecError as problem:
            problems[run] = problem.findings[0].what
        except Exception as problem:  # noqa: BLE001
            problems[run] = f"{type(problem).__name__}: {problem}"
    return left


def _write_and_tell(run: RunPaths) -> None:
    """Raises: as `write_reports`."""
    from jobspec.cli.consent import is_own  # these cost a listing without new ends more than all else
    from jobspec.cli.live.conclude import write_reports
    from jobspec.cli.live.on_end import tell

    write_reports(run)
    if is_own(run.lock):
        tell(run, verdict_of(run))


def write_in_job(run: RunPaths) -> str:
    """The verdict of a run whose job is about to end, its reports written; no scheduler is asked.

    The point of a sweep that comes last writes the reports of the sweep, too.
    Raises: as `write_reports`.
    """
    from jobspec.cli.live.conclude import write_reports
    from jobspec.cli.live.on_end import tell

    write_reports(run)
    own = os.environ.get("JOBSPEC_RUN_DIR") == str(run.root)  # the job itself, not somebody's command
    # From the end: points start in order, and the last one seldom ends first.
    if run.sweep and all((point.root / "report.json").is_file() for point in reversed(run.sweep.points())):
        write_reports(run.sweep)
        if own:
            tell(run.sweep, verdict_of(run.sweep))
    elif own:
        tell(run, verdict_of(run))
    return str(verdict_of(run)["verdict"])


def verdict_of(run: RunPaths) -> dict[str, Any]:
    """`verdict`, `level` and `reason` as the run's report has them; empty without one."""
    data = _json(run.root / "report.json")
    ended = data.get("exit_code")
    result = data.get("result") or next((of for of, code in EXIT_CODES.items() if code == ended), "")
    level, reason = data.get("level"), data.get("reason")
    return {
        "verdict": str(result) if result in list(Result) else "",
        "level": level if isinstance(level, str) else "",
        "reason": reason if isinstance(reason, str) else "",
    }


def _json(path: Path) -> dict[str, Any]:
    """The file's object; empty where it is missing or damaged."""
    try:
        data = parse_json(read_text(path))
    except (OSError, ValueError, RecursionError):
        return {}
    return data if isinstance(data, dict) else {}


def framework_of(run: RunPaths) -> dict[str, str]:
    """`framework` and `level` of the plan; of a sweep, that of its first point. Empty where it is damaged."""
    try:
        points = run.points()
        text = read_text((points[0] if points else run).plan)
    except (OSError, ValueError):
        text = ""
    # The first keys of these names at their depth, as `plan_json` writes them: a thousand plans are long.
    found = {"framework": _FRAMEWORK.search(text), "level": _LEVEL.search(text)}
    return {key: match[1] if match else "" for key, match in found.items()}
