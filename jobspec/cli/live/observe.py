"""What is known about runs right now: scheduler state, newest metrics, events and logs. Prints nothing."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from jobspec import launchers
from jobspec.cli.live.metrics import NO_PROGRESS, Progress, ProgressReader
from jobspec.cli.live.staging import StageProgress, StageTracker
from jobspec.finding import Finding, JobspecError
from jobspec.launchers import JobStatus
from jobspec.runs.paths import SCRIPT_LOGS, RunPaths
from jobspec.runs.records import Launch, damaged, read_launch, read_results, read_scheduler
from jobspec.runtime.base.run_files import UnfitFileError, open_file, parse_json

_TAIL_BYTES = 64 * 1024
OWN_LOGS = re.compile(r"agent|ray|ray-probe|setup|service-.*")  # logs of a node that no command wrote


@dataclass(frozen=True)
class View:
    """One run at one moment. `status` is None for a run that was rendered and never started.

    `stage` is set only while the run is in phase `stage`.
    """

    run: RunPaths
    launch: Launch | None
    status: JobStatus | None
    progress: Progress = NO_PROGRESS
    points: int = 0
    damaged: tuple[Finding, ...] = ()
    stage: StageProgress | None = None

    @property
    def final(self) -> bool:
        return self.status is None or self.status.state.final


def observe(runs: Sequence[RunPaths], unanswered: list[Finding] | None = None) -> list[View]:
    """Views of runs. One query per scheduler covers all runs that are not known to have ended.

    Raises: JobspecError when a scheduler does not answer. With `unanswered` the findings go into that list
    instead and the scheduler's runs are UNKNOWN, so an absent cluster hides no run of another cluster.
    """
    views = [_recorded(run) for run in runs]
    live = [view.launch for view in views if view.launch is not None and view.status is None]
    states = launchers.query(live, unanswered)
    return [_settled(view, states.get(view.launch) if view.launch else None) for view in views]


def glance(runs: Sequence[RunPaths], unanswered: list[Finding]) -> list[View]:
    """`observe` that writes nothing and connects to no other machine: a run there is not asked about."""
    views = [_recorded(run) for run in runs]
    live = [view.launch for view in views if view.launch is not None and view.status is None]
    near = [launch for launch in live if launch.submitted and launch.login == "here"]
    states = launchers.query(near, unanswered)
    asked = (replace(view, status=states.get(view.launch)) if view.launch in near else view for view in views)
    return [view if view.status is not None or view.launch is None else _not_asked(view) for view in asked]


def _not_asked(view: View) -> View:
    reason = "its cluster was not asked: `jobspec status` asks it"
    return replace(view, status=JobStatus(launchers.JobState.UNKNOWN, reason))


def _recorded(run: RunPaths) -> View:
    """What the run directory alone says. A damaged file makes one run unknown, never all of them."""
    try:
        launch, data = read_launch(run), read_scheduler(run)
        if launch is not None and data is None:
            read_results(run)  # its launcher will: a damaged one must not end the query of all runs
        status = None if data is None or launch is None else JobStatus.from_json(data)
        return View(run, launch, status, progress(run), len(run.points()))
    except JobspecError as problem:
        return View(run, None, None, damaged=tuple(problem.findings))
    except OSError as problem:
        path, why = Path(problem.filename or run.root), problem.strerror or str(problem)
        return View(run, None, None, damaged=tuple(damaged(path, why).findings))
    except Exception as problem:  # noqa: BLE001  one odd run must not hide the others
        return unreadable(run, problem)


def unreadable(run: RunPaths, problem: Exception) -> View:
    """The view of a run whose files make a reader fail in a way that nobody has thought of."""
    why = f"{type(problem).__name__}: {problem}"
    return View(run, None, None, damaged=tuple(damaged(run.root, why).findings))


def _settled(view: View, status: JobStatus | None) -> View:
    """The view with the scheduler's answer, which is written down once it is final."""
    if view.launch is None or status is None:
        return view
    launch = view.launch
    if not launch.submitted:  # the query may have settled it
        launch = read_launch(view.run) or launch
        view = replace(view, launch=launch)
    if status.state.final:
        launchers.sync(launch)
        launchers.record_final(view.run, status)
        return replace(view, status=status, progress=progress(view.run))
    # A run that trains has staged: its many events are not read.
    stage = staging(view.run) if view.progress.step is None else None
    return replace(view, status=status, stage=stage)


def staging(run: RunPaths) -> StageProgress | None:
    """How far the newest attempt's staging is; None before and after it."""
    tracker = StageTracker()
    tracker.take(EventTail(run, newest_only=True).read())
    return tracker.progress if tracker.running else None


def progress(run: RunPaths) -> Progress:
    """How far the run is, looked at once."""
    return ProgressReader(run).read()


def _object(line: bytes) -> dict[str, Any]:
    try:
        data = parse_json(line)
    except ValueError:
        return {}
    return data if isinstance(data, dict) else {}


@dataclass
class EventTail:
    """The events of a run's attempts as they are written; each call returns those that are new."""

    run: RunPaths
    newest_only: bool = False
    _offsets: dict[int, int] = field(default_factory=dict)

    def read(self) -> list[dict[str, Any]]:
        attempts = self.run.attempts()
        numbers = attempts[-1:] if self.newest_only else attempts
        return [event for number in numbers for event in self._attempt(number)]

    def _attempt(self, number: int) -> Iterator[dict[str, Any]]:
        path = self.run.attempt(number) / "events.jsonl"
        try:
            with open_file(path) as file:
                file.seek(self._offsets.get(number, 0))
                data = file.read()
        except (FileNotFoundError, UnfitFileError):
            return
        whole = data[: data.rfind(b"\n") + 1]  # the last line may still be being written
        self._offsets[number] = self._offsets.get(number, 0) + len(whole)
        for line in whole.splitlines():
            event = _object(line)
            if event:
                yield {**event, "attempt": number}


def log_files(run: RunPaths, node: str = "", name: str = "") -> list[Path]:
    """Logs of the newest attempt by node and name. Without either: the driver's logs, else the job's.

    `name` is a file's name without `.log`, such as `train` or `ray`.
    """
    attempts = run.attempts()
    folder = run.attempt(attempts[-1]) / "logs" if attempts else run.root / "none"
    paths = [path for path in sorted(folder.glob("*/*.log")) if not node or path.parent.name == node]
    if node or name:
        return [path for path in paths if not name or path.stem == name]
    commands = [
        path
        for path in paths
        if not OWN_LOGS.fullmatch(path.stem) and not SCRIPT_LOGS.match(path.parent.name)
    ]
    return commands or run.job_logs()


def all_logs(run: RunPaths) -> list[Path]:
    attempts = (run.attempt(number) / "logs" for number in run.attempts())
    return [*run.job_logs(), *(path for folder in attempts for path in sorted(folder.glob("*/*.log")))]


def tail(path: Path, lines: int) -> list[str]:
    """The last lines of a file, from its last 64 KiB; none when it is gone."""
    try:
        with open_file(path) as file:
            file.seek(max(0, file.seek(0, 2) - _TAIL_BYTES))
            text = file.read().decode("utf-8", "replace")
    except (FileNotFoundError, UnfitFileError):
        return []
    return text.splitlines()[-lines:]
