"""Reads the evidence of a run from its files alone; judges nothing.

Reading never fails: a missing, torn or unreadable file becomes a finding in `Evidence.problems`, and its
evidence is absent. `jobspec.judging.judge` draws the conclusions.
"""

from __future__ import annotations

import errno
import hashlib
import json
import os
import re
import shlex
import stat
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from glob import glob
from pathlib import Path
from typing import Any, TypeVar

from msgspec import convert

from jobspec.evidence.evidence import (
    Artifact,
    Attempt,
    Checkpoint,
    CommandResult,
    Event,
    Evidence,
    LogFile,
    NodeFacts,
    PhaseResult,
    Results,
    SchedulerState,
    ServiceResult,
)
from jobspec.evidence.lost_answers import in_logs
from jobspec.evidence.pytest_log import read_test_log
from jobspec.evidence.tracker_files import tracker_files, tracker_pages
from jobspec.finding import Finding, warning
from jobspec.metrics import read_metrics
from jobspec.plan import Plan, from_json
from jobspec.runs.paths import SCRIPT_LOGS, RunPaths
from jobspec.runtime.base.run_files import read_lines, read_text
from jobspec.triage import LogSource, Match, scan_files
from jobspec.triage.deciding_facts import with_recorded_facts

__all__ = ["read_checkpoints", "read_evidence"]

T = TypeVar("T")
MAX_LISTED_FILES = 2000  # per checkpoint; a sharded checkpoint of 64 ranks has about 300
CHECKPOINT_NAME = re.compile(r"^(?:checkpoint[-_]|global_step[-_]?|step[-_]|iter[-_]|epoch[-_]?)0*(\d+)$")
PATCHED_FILE = re.compile(r"^diff --git a/(?:.+) b/(.+)$", re.MULTILINE)
# Rules of what tells that an attempt began, and the word for what is there but closed to this user.
RECORDS = frozenset({"evidence.attempts", "evidence.events", "evidence.results"})
MOST_ATTEMPTS = 1000
CLOSED = os.strerror(errno.EACCES)
LOG_SUFFIXES = (".log", ".out", ".err", ".txt")
# Errors of decoding a file that is torn or changed by hand; msgspec's errors are ValueErrors.
DAMAGED = (ValueError, TypeError, KeyError, AttributeError, RecursionError)


def read_evidence(run_dir: Path) -> Evidence:
    """All evidence of the run directory.

    Reads files only below `run_dir`, in the checkpoint folder of the plan, and at absolute patterns of
    `plan.expect.files`. Raises nothing for a missing or torn file; see `Evidence.problems`.
    """
    paths = RunPaths(run_dir)
    problems: list[Finding] = []
    numbers = _attempt_numbers(paths, problems)
    folders = [paths.attempt(number) for number in numbers]
    problems += _writable_by_others(paths, folders)
    plan, plan_sha256 = _read_plan(paths.plan, problems)
    known = plan if plan is not None else Plan("", "", "", "", "")
    artifacts = _read_manifest(paths, problems)
    attempts = tuple(_read_attempt(paths, number, numbers[0], problems) for number in numbers)
    job = _scan(paths, _job_logs(paths), {}) if not attempts else attempts[0].matches
    return Evidence(
        root=run_dir,
        plan=known,
        plan_read=plan is not None,
        plan_sha256=plan_sha256,
        attempts=attempts,
        job_matches=tuple(match for match in job if "/" not in match.file),
        artifacts=artifacts or (),
        manifest_read=artifacts is not None,
        checkpoints=read_checkpoints(Path(known.checkpoint_dir)) if known.checkpoint_dir else (),
        scheduler=_read_scheduler(paths.scheduler, problems),
        expected_files={pattern: _expected(paths, pattern) for pattern in known.expect.files},
        problems=tuple(problems),
        dirty_files={repo.name: _patched(paths, repo.name) for repo in known.repos if repo.dirty},
        trackers=(
            *tracker_files(paths.root, folders),
            *tracker_pages(paths.root, [log.path for attempt in attempts for log in attempt.logs]),
        ),
    )


def _attempt_numbers(paths: RunPaths, problems: list[Finding]) -> list[int]:
    """The numbers of the attempts in order; none where their folder cannot be read."""
    try:
        numbers = paths.attempts()
    except OSError as why:
        problems.append(_unreadable("evidence.attempts", paths.root / "attempts", _reason(why)))
        return []
    if len(numbers) > MOST_ATTEMPTS:
        told = f"{len(numbers)} attempts are there, and the newest {MOST_ATTEMPTS} are read"
        problems.append(_unreadable("evidence.attempts", paths.root / "attempts", told))
    return numbers[-MOST_ATTEMPTS:]


def _writable_by_others(paths: RunPaths, attempts: Sequence[Path]) -> Iterator[Finding]:
    """A warning where anybody may have changed what the verdict stands on."""
    results = [attempt / "results.json" for attempt in attempts]
    places = [paths.root, paths.plan, paths.job, paths.state, paths.scheduler, *attempts, *results]
    opened = [_relative(path, paths.root) for path in places if _mode(path) & stat.S_IWOTH]
    if opened:
        shown = ", ".join("the run folder" if name == "." else f"`{name}`" for name in opened)
        why = "anybody on this file system may have changed the run's records"
        fix = f"`chmod -R o-w {shlex.quote(str(paths.root))}`, and run again where the verdict counts"
        yield warning("evidence.writable", f"others may write {shown}", why, fix, file=str(paths.root))


def _mode(path: Path) -> int:
    found = _stat(path)
    return found.st_mode if found is not None else 0


def read_checkpoints(folder: Path) -> tuple[Checkpoint, ...]:
    """Checkpoint folders right below `folder` by step; `()` when there is none or it cannot be read."""
    checkpoints = []
    for path in _children(folder):
        name = CHECKPOINT_NAME.match(path.name)
        if name and os.path.isdir(path):  # noqa: PTH112 - never raises
            checkpoints.append(_read_checkpoint(path, int(name.group(1))))
    return tuple(sorted(checkpoints, key=lambda item: item.step))


def _read_checkpoint(path: Path, step: int) -> Checkpoint:
    files, total, modified = [], 0, 0.0
    for base, _, names in os.walk(path):
        for name in names:
            stat = _stat(Path(base, name))
            if stat is not None:
                files.append(str(Path(base, name).relative_to(path)))
                total, modified = total + stat.st_size, max(modified, stat.st_mtime)
    return Checkpoint(str(path), step, tuple(sorted(files)[:MAX_LISTED_FILES]), total, modified)


def _read_plan(path: Path, problems: list[Finding]) -> tuple[Plan | None, str]:
    """The plan and the SHA-256 of its file, which `sha256sum plan.json` prints too."""
    text = _text(path, "evidence.plan", problems)
    if text is None:
        return None, ""
    try:
        return from_json(text), hashlib.sha256(text.encode()).hexdigest()
    except DAMAGED as why:
        problems.append(_unreadable("evidence.plan", path, str(why)))
        return None, ""


def _patched(paths: RunPaths, repo: str) -> tuple[str, ...]:
    """Files that the repository's patch changes; `()` when it is not there."""
    try:
        text = read_text(paths.patches / f"{repo}.diff", errors="replace")
    except OSError:
        return ()
    return tuple(dict.fromkeys(PATCHED_FILE.findall(text)))


def _read_attempt(paths: RunPaths, number: int, first: int, problems: list[Finding]) -> Attempt:
    folder = paths.attempt(number)
    # All attempts share the batch script's log: it counts as the first one's.
    logs = (*_read_logs(paths, folder), *(_job_logs(paths) if number == first else ()))
    events = tuple(_read_events(folder / "events.jsonl", paths.root, problems))
    results = _read_results(folder / "results.json", paths.root, number, problems)
    problems.extend(_missing_logs(results, logs))
    nodes = {node.name: node.facts for node in results.nodes} if results is not None else {}
    return Attempt(
        number=number,
        folder=_relative(folder, paths.root),
        events=events,
        results=results,
        logs=logs,
        metrics=read_metrics(folder / "metrics", relative_to=paths.root),
        matches=_scan(paths, logs, nodes),
        lost=in_logs((log.path, paths.root / log.path) for log in logs),
    )


def _scan(
    paths: RunPaths, logs: Iterable[LogFile], nodes: Mapping[str, Mapping[str, Any]]
) -> tuple[Match, ...]:
    """The failures that the logs show, with what the runtime saw of the nodes."""
    scanned = scan_files(
        LogSource(paths.root / log.path, log.path, log.node, _clock_ahead(nodes.get(log.node, {})))
        for log in logs
    )
    return tuple(with_recorded_facts(scanned, nodes))


def _clock_ahead(facts: Mapping[str, Any]) -> float:
    """Seconds by which a node's clock was ahead of the head's; 0 up to a second, the error of measuring."""
    ahead = facts.get("clock_skew_s")
    return float(ahead) if isinstance(ahead, int | float) and abs(ahead) > 1 else 0.0


def _read_logs(paths: RunPaths, folder: Path) -> tuple[LogFile, ...]:
    """Logs of every node."""
    base = folder / "logs"
    log_paths = sorted(path for path in _walk(base) if path.suffix in LOG_SUFFIXES and _is_file(path))
    return tuple(
        LogFile(_relative(p, paths.root), _node_of(p.relative_to(base)), _size(p)) for p in log_paths
    )


def _job_logs(paths: RunPaths) -> tuple[LogFile, ...]:
    """The batch script's own log."""
    logs = [path for path in _children(paths.root) if path.name.startswith("job-") and path.suffix == ".log"]
    return tuple(LogFile(path.name, "", _size(path)) for path in logs if _is_file(path))


def _is_file(path: Path) -> bool:
    return os.path.isfile(path)  # noqa: PTH113 - never raises


def _node_of(log: Path) -> str:
    """The node that owns the log's folder; empty for `<job>-logs`, a batch script's own folder."""
    return "" if SCRIPT_LOGS.match(log.parts[0]) else log.parts[0]


def _read_events(path: Path, root: Path, problems: list[Finding]) -> Iterator[Event]:
    """Events of every whole line; a torn line proves nothing and is named as a problem."""
    file = _relative(path, root)
    try:
        for number, line in enumerate(read_lines(path), 1):
            if line.strip():
                try:
                    yield _event(json.loads(line.decode("utf-8", "replace")), file, number)
                except DAMAGED:
                    why = "the line is not a whole event"
                    problems.append(_unreadable("evidence.events", path, why, number))
    except OSError as why:
        problems.append(_unreadable("evidence.events", path, _reason(why)))


def _event(data: Mapping[str, Any], file: str, line: int) -> Event:
    finding = _parsed(data["finding"], Finding) if data.get("finding") else None
    return _parsed({**data, "time": data["t"], "finding": finding, "file": file, "line": line}, Event)


def _missing_logs(results: Results | None, logs: Iterable[LogFile]) -> Iterator[Finding]:
    """A warning for each missing log that `results.json` names."""
    have = {log.path for log in logs}
    named = [(item.name, item.log) for item in results.commands] if results is not None else []
    named += [(item.name, item.log) for item in results.services] if results is not None else []
    for name, log in named:
        if log and log not in have:
            what = f"the log of `{name}`, `{log}`, is missing"
            fix = "restore the log; until then its causes, steps and imports count as not shown"
            yield warning("evidence.log", what, fix=fix, file=results.file if results else "")


def _read_results(path: Path, root: Path, number: int, problems: list[Finding]) -> Results | None:
    text = _text(path, "evidence.results", problems)
    if text is None:
        return None
    try:
        return _results(json.loads(text), path, root, number)
    except DAMAGED as why:
        problems.append(_unreadable("evidence.results", path, f"{type(why).__name__}: {why}"))
        return None


def _results(data: Mapping[str, Any], path: Path, root: Path, number: int) -> Results:
    if data.get("attempt", number) != number:
        raise ValueError(
            f"the file is of attempt {data['attempt']} but lies in the folder of attempt {number}"
        )
    parts = {
        "findings": [_parsed(item, Finding) for item in data.get("findings") or ()],
        "phases": [_parsed(item, PhaseResult) for item in data.get("phases") or ()],
        "commands": [_command(item, path.parent, root) for item in data.get("commands") or ()],
        "services": [
            _parsed({**item, "log": _relative(path.parent / item["log"], root)}, ServiceResult)
            for item in data.get("services") or ()
        ],
        "nodes": [_parsed(item, NodeFacts) for item in data.get("nodes") or ()],
    }
    return _parsed({**data, **parts, "file": _relative(path, root)}, Results)


def _command(item: Mapping[str, Any], attempt: Path, root: Path) -> CommandResult:
    signal = str(item.get("signal") or "")  # the runtime writes 0 where none ended it
    command = _parsed({**item, "signal": signal, "tests": None}, CommandResult)
    if not command.log:
        return command
    tests = read_test_log(attempt / command.log) if command.phase == "checks" else None
    return replace(command, log=_relative(attempt / command.log, root), tests=tests)


def _read_manifest(paths: RunPaths, problems: list[Finding]) -> tuple[Artifact, ...] | None:
    """The manifest's rows; None when there is no whole manifest."""
    if not os.path.exists(paths.manifest):  # noqa: PTH110 - never raises
        return None
    text = _text(paths.manifest, "evidence.manifest", problems)
    try:
        rows = [_parsed(item, Artifact) for item in json.loads(text or "")["files"]]
    except DAMAGED as why:
        problems.append(_unreadable("evidence.manifest", paths.manifest, f"{type(why).__name__}: {why}"))
        return None
    return tuple(replace(row, present=_has_size(paths.artifacts / row.path, row.bytes)) for row in rows)


def _read_scheduler(path: Path, problems: list[Finding]) -> SchedulerState:
    if not os.path.exists(path):  # noqa: PTH110 - never raises
        return SchedulerState()
    text = _text(path, "evidence.scheduler", problems)
    try:
        data = json.loads(text or "")
        exit_code = data.get("exit_code")
        data["exit_code"] = "" if exit_code is None else str(exit_code)
        return _parsed(data, SchedulerState)
    except DAMAGED as why:
        problems.append(_unreadable("evidence.scheduler", path, str(why)))
        return SchedulerState()


def _expected(paths: RunPaths, pattern: str) -> tuple[str, ...]:
    base = "" if pattern.startswith("/") else str(paths.artifacts) + os.sep
    matches = sorted(glob(base + pattern, recursive=True))  # noqa: PTH207 - `pattern` may be absolute
    return tuple(_relative(Path(path), paths.root) for path in matches if _is_file(Path(path)))


def _parsed(data: Mapping[str, Any], kind: type[T]) -> T:
    """The object as `kind`; null counts as missing, other keys are left out. Raises: one of `DAMAGED`."""
    return convert({key: value for key, value in data.items() if value is not None}, kind)


def _text(path: Path, rule: str, problems: list[Finding]) -> str | None:
    try:
        return read_text(path, errors="replace")
    except OSError as why:
        problems.append(_unreadable(rule, path, _reason(why)))
        return None


def _reason(why: OSError) -> str:
    return why.strerror or type(why).__name__


def _unreadable(rule: str, path: Path, why: str, line: int = 0) -> Finding:
    what, fix = (
        f"`{path.name}` cannot be read in full",
        "restore the file; until then its content counts as not proved",
    )
    return warning(rule, what, why, fix, file=str(path), line=line)


def _relative(path: Path, root: Path) -> str:
    return str(path.relative_to(root)) if path.is_relative_to(root) else str(path)


def _children(folder: Path) -> Sequence[Path]:
    try:
        return sorted(folder.iterdir())
    except OSError:
        return ()


def _walk(folder: Path) -> Iterable[Path]:
    return (Path(base, name) for base, _, names in os.walk(folder) for name in names)


def _stat(path: Path) -> os.stat_result | None:
    try:
        return path.stat()
    except OSError:
        return None


def _size(path: Path) -> int:
    stat = _stat(path)
    return stat.st_size if stat is not None else 0


def _has_size(path: Path, size: int) -> bool:
    stat = _stat(path)
    return stat is not None and stat.st_size == size
