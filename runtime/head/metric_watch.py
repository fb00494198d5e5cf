"""Conditions on metrics that end a run while its driver runs: no GPUs should go on with broken weights.

Files are read as they grow, each only from where the last look ended. A file that cannot be read says
nothing: a watch never ends a run for what it does not know.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass
from pathlib import Path
from typing import Callable, Dict, List, Mapping, Optional, Sequence, Set, Tuple

from jobspec.finding import Finding, error
from jobspec.plan import AbortPlan
from jobspec.runtime.base.event_files import EventDecoder
from jobspec.runtime.base.metric_files import (
    EVENTS,
    LINES,
    LineDecoder,
    Row,
    Tail,
    by_step,
    files_below,
    group_prefix,
    kind_of,
)
from jobspec.runtime.base.requirement import judge

POLL_S = 1.0


@dataclass(frozen=True)
class Tripped:
    """A condition that holds, the newest step of its metrics if they name any, and the values that decide."""

    condition: AbortPlan
    step: Optional[int]
    values: Tuple[Tuple[str, float], ...]

    def finding(self) -> Finding:
        at = "" if self.step is None else f" at step {self.step}"
        readings = ", ".join(f"`{name}` is {value:.6g}" for name, value in self.values)
        return error(
            "driver.aborted",
            f"the run was ended{at}: {readings}",
            f"the condition is `{self.condition.text}`"
            + (f": {self.condition.why}" if self.condition.why else ""),
            self.condition.fix
            or "look at the metrics; `metrics.abort_when` and the framework's own list name such conditions",
        )


class Watch:
    """The metrics below one folder that conditions name, judged as the report judges them.

    JSON dumps are left out: a program writes them when it ends.
    """

    def __init__(self, folder: Path, conditions: Sequence[AbortPlan]) -> None:
        self._folder = folder
        self._conditions = conditions
        self._wanted: Set[str] = {term.metric for condition in conditions for term in condition.terms}
        self._files: Dict[Path, _File] = {}
        self._looked = False
        self._tripped: Optional[Tripped] = None

    def look(self) -> Optional[Tripped]:
        """Read what is new; the first condition that holds now."""
        # A folder that cannot be listed for a while takes no file away that was read before.
        for path in files_below(self._folder):
            if path not in self._files and kind_of(path) in (LINES, EVENTS):
                self._files[path] = _File(path, self._folder)
        changed = [file.read(self._wanted) for file in self._files.values()]
        if any(changed) or not self._looked:
            points, self._looked = self._points(), True
            judged = (_judge(condition, points) for condition in self._conditions)
            self._tripped = next((tripped for tripped in judged if tripped is not None), None)
        return self._tripped

    def _points(self) -> Dict[str, Sequence[Row]]:
        """The points of each wanted metric, of the files that count (`metrics.readers.read_metrics`)."""
        files = [self._files[path] for path in sorted(self._files)]
        lines = [file for file in files if file.kind == LINES]
        events = [file for file in files if file.kind == EVENTS]
        rows: Dict[str, List[Row]] = {metric: [] for metric in self._wanted}
        for file in lines if any(file.has_steps for file in lines) else [*lines, *events]:
            for row in (*file.rows, *file.last):
                rows[row.metric].append(row)
        return {metric: by_step(points) for metric, points in rows.items()}


class _File:
    """What one file holds of the wanted metrics, and whether it names steps at all."""

    def __init__(self, path: Path, folder: Path) -> None:
        self.kind = kind_of(path)
        self.rows: List[Row] = []
        self.last: List[Row] = []
        self.has_steps = False
        self._had_steps = False
        self._prefix = group_prefix(path, folder)
        self._tail = Tail(path, lambda _: LineDecoder() if self.kind == LINES else EventDecoder())

    def read(self, metrics: Set[str]) -> bool:
        """Take what is new in the file, and return whether anything is."""
        rows = self._tail.read()
        if not self._tail.changed:
            return False
        if self._tail.anew:
            self.rows, self._had_steps = [], False
        last = self._tail.last()
        self._had_steps |= any(row.step is not None for row in rows)
        self.has_steps = self._had_steps or any(row.step is not None for row in last)
        self.rows += self._named(rows, metrics)
        self.last = self._named(last, metrics)
        return True

    def _named(self, rows: Sequence[Row], metrics: Set[str]) -> List[Row]:
        named = (row._replace(metric=self._prefix + row.metric) for row in rows)
        return [row for row in named if row.metric in metrics]


def _judge(condition: AbortPlan, points: Mapping[str, Sequence[Row]]) -> Optional[Tripped]:
    values: List[Tuple[str, float]] = []
    for term in condition.terms:
        judged = judge(term, points[term.metric])
        if not judged.holds or judged.value is None:
            return None
        values.append((f"{term.function}({term.metric})", judged.value))
    rows = (row for term in condition.terms for row in points[term.metric])
    step = max((row.step for row in rows if row.step is not None), default=None)
    return Tripped(condition, step, tuple(values))


class Watcher:
    """A thread that looks until a condition holds or `close` is called."""

    def __init__(self, watch: Watch, trip: Callable[[Tripped], None], poll_s: float = POLL_S) -> None:
        self._watch = watch
        self._trip = trip
        self._poll_s = poll_s
        self._closed = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True, name="metrics-watch")
        self._thread.start()

    def _run(self) -> None:
        while not self._closed.wait(self._poll_s):
            tripped = self._watch.look()
            if tripped is not None:
                self._trip(tripped)
                return

    def close(self) -> None:
        """Begin no further look, and wait for the current one as long as a slow disk may take."""
        self._closed.set()
        self._thread.join(10.0)
