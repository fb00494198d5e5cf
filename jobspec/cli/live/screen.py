"""How a run is shown while it goes on: a live table on a terminal, one line for each change elsewhere."""

from __future__ import annotations

import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

from jobspec.cli import output
from jobspec.cli.live.metrics import Progress
from jobspec.cli.live.points import RUNNING, WAITING, PointState
from jobspec.cli.live.staging import StageTracker
from jobspec.finding import Finding, one_line
from jobspec.launchers import JobStatus
from jobspec.units import duration, figure

if TYPE_CHECKING:
    from rich.live import Live
    from rich.table import Table

# Without a terminal, steps get a line only this often: people read logs of CI later, as a whole.
PLAIN_PROGRESS_S = 5.0
# A terabyte takes an hour or so: a line a minute.
PLAIN_STAGE_S = 60.0
BAR_WIDTH = 24
MAX_POINTS = 30  # of a sweep, on one screen
_STYLES = {"ok": "green", "cached": "green", "failed": "red", "blocked": "red", "skipped": "dim"}


class Screen(Protocol):
    """Shows updates; `close` leaves the terminal as it was."""

    def show(
        self,
        status: JobStatus,
        events: Sequence[Mapping[str, Any]],
        progress: Progress,
        points: Sequence[PointState] = (),
    ) -> None: ...

    def close(self) -> None: ...


def open_screen(title: str) -> Screen:
    """A live screen on a terminal, lines elsewhere."""
    return LiveScreen(title) if output.colored(sys.stdout) else PlainScreen()


def shown(progress: Progress) -> str:
    """The figures of a step; a metric that the spec asks to rise and that is no figure comes first."""
    if progress.value is None or progress.value == progress.figure("reward"):
        return progress.figures_text()
    return f"{progress.metric} {figure(progress.value)}  {progress.figures_text()}".rstrip()


def finding_of(event: Mapping[str, Any]) -> Finding | None:
    data = event.get("finding")
    return Finding.from_json(data) if isinstance(data, dict) and "what" in data else None


@dataclass
class PlainScreen:
    """One line for each state and phase, for a step every few seconds, for staging every minute."""

    started: float = field(default_factory=time.monotonic)
    _state: tuple[str, str] = ("", "")
    _step: int | None = None
    _step_time: float = 0.0
    _stage: StageTracker = field(default_factory=StageTracker)
    _stage_time: float = -PLAIN_STAGE_S
    _points: dict[int, str] = field(default_factory=dict)

    def show(
        self,
        status: JobStatus,
        events: Sequence[Mapping[str, Any]],
        progress: Progress,
        points: Sequence[PointState] = (),
    ) -> None:
        if not status.state.final:
            self._status(status)
        for event in events:
            self._event(event)
        self._stage.take(events)
        now = time.monotonic()
        staging = self._stage.progress.text() if self._stage.running else ""
        if staging and now - self._stage_time >= PLAIN_STAGE_S:
            self._stage_time = now
            self._line("stage", staging)
        done = progress.steps and progress.step == progress.steps
        if progress.step != self._step and (now - self._step_time > PLAIN_PROGRESS_S or done):
            self._step, self._step_time = progress.step, now
            self._line("step", progress.text(), shown(progress))
        for point in points:
            if self._points.get(point.index, WAITING) != point.outcome:
                self._points[point.index] = point.outcome
                words = (point.progress.text() and f"step {point.progress.text()}", shown(point.progress))
                self._line(f"point {point.index}", point.outcome, point.label, *words)
        if status.state.final:
            self._status(status)

    def _status(self, status: JobStatus) -> None:
        state = (status.state.value, status.reason)
        if state != self._state:
            self._state = state
            self._line(status.state.value.lower(), status.reason, status.nodes)

    def _event(self, event: Mapping[str, Any]) -> None:
        finding = finding_of(event)
        if finding is not None:
            print(finding.text(), flush=True)
        elif event.get("event") == "end" and not event.get("node"):
            seconds = event.get("seconds")
            spent = duration(seconds) if isinstance(seconds, int | float) else ""
            self._line(str(event.get("phase", "")), str(event.get("outcome", "")), spent)

    def _line(self, *words: str) -> None:
        elapsed = time.monotonic() - self.started
        head = f"[{int(elapsed // 60):3d}:{elapsed % 60:04.1f}]"
        text = "  ".join(word for word in words[1:] if word)
        print(one_line(f"{head} {words[0]:<10} {text}"), flush=True)

    def close(self) -> None:
        sys.stdout.flush()


class LiveScreen:
    """Phases with their times, and bars for staging and for steps, redrawn in place."""

    def __init__(self, title: str) -> None:
        from rich.live import Live

        self._title = title
        self._phases: dict[str, tuple[str, float, float | None]] = {}
        self._status: JobStatus | None = None
        self._progress = Progress()
        self._stage = StageTracker()
        self._points: Sequence[PointState] = ()
        self._live: Live = Live(self._draw(), refresh_per_second=8, transient=False)
        self._live.start()

    def show(
        self,
        status: JobStatus,
        events: Sequence[Mapping[str, Any]],
        progress: Progress,
        points: Sequence[PointState] = (),
    ) -> None:
        self._status, self._progress, self._points = status, progress, points
        self._stage.take(events)
        for event in events:
            self._event(event)
        self._live.update(self._draw())

    def _event(self, event: Mapping[str, Any]) -> None:
        phase, kind = str(event.get("phase", "")), event.get("event")
        finding = finding_of(event)
        if finding is not None:
            self._live.console.print(finding.text(), markup=False, highlight=False)
        elif kind == "start" and phase not in self._phases:
            self._phases[phase] = ("running", time.time(), None)
        elif kind == "end" and not event.get("node"):
            seconds = event.get("seconds")
            started = self._phases.get(phase, ("", time.time(), None))[1]
            spent = float(seconds) if isinstance(seconds, int | float) else time.time() - started
            self._phases[phase] = (str(event.get("outcome", "")), started, spent)

    def _draw(self) -> Table:
        from rich.table import Table
        from rich.text import Text

        state = (
            f"{self._status.state.value.lower()} {self._status.reason}".strip()
            if self._status
            else "starting"
        )
        title = Text(one_line(f"{self._title}: {state}"))
        table = Table(title=title, title_justify="left", box=None, show_header=False)
        for phase, (outcome, started, spent) in self._phases.items():
            style = _STYLES.get(outcome, "yellow")
            taken = duration(spent if spent is not None else time.time() - started)
            table.add_row(
                Text(one_line(phase)), Text(one_line(outcome), style=style), taken, self._bar(phase)
            )
        for point in self._drawn():
            style = _STYLES.get(point.outcome, "yellow" if point.ended else "")
            head = Text(one_line(f"{point.index}: {point.label}"), overflow="fold")
            rest = (Text(one_line(text)) for text in (point.progress.text(), shown(point.progress)))
            table.add_row(head, Text(one_line(point.outcome), style=style), *rest)
        return table

    def _drawn(self) -> Sequence[PointState]:
        """The points, or of many those that have not ended first: what a screen has no room for is lost."""
        if len(self._points) <= MAX_POINTS:
            return self._points
        order = sorted(self._points, key=lambda point: (point.outcome != RUNNING, point.ended, point.index))
        return sorted(order[:MAX_POINTS], key=lambda point: point.index)

    def _bar(self, phase: str) -> Any:
        """The bar beside a phase; empty where no progress is known."""
        progress, stage = self._progress, self._stage.progress
        if phase == "stage" and self._stage.running and stage.text():
            return _bar(stage.share, 1.0, stage.text())
        if phase == "driver" and progress.step is not None:
            return _bar(progress.step, progress.steps or None, f"{progress.text()}  {shown(progress)}")
        return ""

    def close(self) -> None:
        self._live.stop()


def _bar(completed: float, total: float | None, text: str) -> Any:
    from rich.columns import Columns
    from rich.progress_bar import ProgressBar
    from rich.text import Text

    return Columns([ProgressBar(total=total, completed=completed, width=BAR_WIDTH), Text(one_line(text))])
