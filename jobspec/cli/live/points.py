"""The points of a sweep while it runs: how each of them is, looked at again and again."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from jobspec.cli.live.metrics import NO_PROGRESS, Progress, ProgressReader
from jobspec.finding import JobspecError
from jobspec.runs.paths import RunPaths
from jobspec.runs.records import read_results

if TYPE_CHECKING:  # of a single run nothing of sweeps is loaded
    from jobspec.sweeps.finished import PointRecord

WAITING, RUNNING = "waiting", "running"


@dataclass(frozen=True)
class PointState:
    """One point at one moment: what it sets, how it is, and how far. `outcome` is that of its results."""

    index: int
    label: str
    outcome: str
    progress: Progress = NO_PROGRESS

    @property
    def ended(self) -> bool:
        return self.outcome not in (WAITING, RUNNING)


@dataclass
class PointWatch:
    """Reads the points of a sweep; one that has ended is read again once it has another attempt.

    A single run has no points.
    """

    run: RunPaths
    _points: tuple[PointRecord, ...] | None = None
    _readers: dict[int, ProgressReader] = field(default_factory=dict)
    _ended: dict[int, tuple[int, PointState]] = field(default_factory=dict)  # with the number of attempts

    def read(self) -> tuple[PointState, ...]:
        if self._points is None:
            self._points = _points(self.run) if self.run.is_sweep else ()
        return tuple(self._state(point) for point in self._points)

    def _state(self, point: PointRecord) -> PointState:
        attempts = 0 if point.reused else len(point.run.attempts())
        known = self._ended.get(point.index)
        if known is not None and known[0] == attempts:
            return known[1]
        from jobspec.sweeps.points import label

        name = label(point.sets)
        if point.reused:
            state = PointState(point.index, name, f"of run {point.reused}")
        else:
            reader = self._readers.setdefault(point.index, ProgressReader(point.run))
            state = PointState(point.index, name, _outcome(point.run), reader.read())
        if state.ended:
            self._ended[point.index] = (attempts, state)
        return state


def _points(run: RunPaths) -> tuple[PointRecord, ...]:
    from jobspec.sweeps.finished import read_points

    try:
        return read_points(run).points
    except JobspecError:  # the report says so
        return ()


def _outcome(run: RunPaths) -> str:
    if not run.attempts():
        return WAITING
    try:
        results = read_results(run)
    except JobspecError:
        return "damaged"
    if results is not None:
        return str(results.get("outcome") or "ended")
    return "ended" if run.exit_file.is_file() else RUNNING
