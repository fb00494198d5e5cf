"""Conditions on metrics that end a run while its driver runs: no GPUs should go on with broken weights.

Files are read as they grow, each only from where the last look ended. A file that cannot be read says
nothing: a watch never ends a run for what it does not know.
"""

from __future__ import annotations

import json
import math
import operator
import sys
import threading
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Callable, Dict, Iterator, List, Mapping, Optional, Sequence, Set, Tuple

from jobspec.finding import Finding, error
from jobspec.plan import AbortPlan, TermPlan
from jobspec.runtime.base.event_files import DamagedError, records, scalars
from jobspec.runtime.base.metric_groups import group_prefix

POLL_S = 1.0
MAX_READ_BYTES = 64 * 1024**2  # of one file and look
STEP_KEYS = ("step", "train_step", "global_step", "training/global_step", "_step")
COMPARE: Dict[str, Callable[[float, float], bool]] = {
    ">": operator.gt, ">=": operator.ge, "<": operator.lt, "<=": operator.le,
    "==": operator.eq, "!=": operator.ne,
}  # fmt: skip
Series = Dict[int, float]


@dataclass(frozen=True)
class Tripped:
    """A condition that holds, the newest step of its metrics, and the values that it was judged by."""

    condition: AbortPlan
    step: int
    values: Tuple[Tuple[str, float], ...]

    def finding(self) -> Finding:
        told = ", ".join(f"`{name}` is {value:.6g}" for name, value in self.values)
        return error(
            "driver.aborted",
            f"the run was ended at step {self.step}: {told}",
            f"the condition is `{self.condition.text}`"
            + (f": {self.condition.why}" if self.condition.why else ""),
            self.condition.fix
            or "see what the metrics say; `metrics.abort_when` and the framework's own list end a run",
        )


class Watch:
    """The metrics below one folder, as far as conditions ask for them."""

    def __init__(self, folder: Path, conditions: Sequence[AbortPlan]) -> None:
        self._folder = folder
        self._conditions = conditions
        self._wanted: Set[str] = {term.metric for one in conditions for term in one.terms}
        self._series: Dict[str, Series] = {name: {} for name in self._wanted}
        self._offsets: Dict[Path, int] = {}
        self._damaged: Set[Path] = set()

    def look(self) -> Optional[Tripped]:
        """Read what is new; the first condition that holds now."""
        for path in self._files():
            if path not in self._damaged and (path.suffix == ".jsonl" or "tfevents" in path.name):
                self._read(path)
        return next((found for one in self._conditions if (found := self._judge(one)) is not None), None)

    def _files(self) -> List[Path]:
        try:
            return sorted(self._folder.rglob("*"))
        except OSError:  # a folder that vanished meanwhile, or a stale handle: the next look sees more
            return []

    def _read(self, path: Path) -> None:
        try:
            with path.open("rb") as file:
                file.seek(self._offsets.get(path, 0))
                data = file.read(MAX_READ_BYTES)
        except OSError:
            return
        try:
            used, rows = _lines(data) if path.suffix == ".jsonl" else _events(data)
        except DamagedError:
            self._damaged.add(path)
            return
        self._offsets[path] = self._offsets.get(path, 0) + used
        prefix = group_prefix(path, self._folder)
        for name, step, value in rows:
            if prefix + name in self._wanted:
                self._series[prefix + name][step] = value

    def _judge(self, condition: AbortPlan) -> Optional[Tripped]:
        values: List[Tuple[str, float]] = []
        for term in condition.terms:
            value = _value(term, self._series[term.metric])
            if value is None or not COMPARE[term.operator](value, term.bound):
                return None
            values.append((f"{term.function}({term.metric})", value))
        step = max((step for term in condition.terms for step in self._series[term.metric]), default=0)
        return Tripped(condition, step, tuple(values))


def _value(term: TermPlan, series: Series) -> Optional[float]:
    """What a term compares; None while nothing was logged, or where a value is not finite."""
    if term.function == "count":
        return float(len(series))
    values = [series[step] for step in sorted(series)]
    if not values:
        return None
    if term.function in ("first", "last"):
        value = values[0 if term.function == "first" else -1]
        return value if math.isfinite(value) else None
    if not all(map(math.isfinite, values)):
        return None
    if term.function == "mean":
        return math.fsum(values) / len(values)
    return max(values) if term.function == "max" else min(values)


Row = Tuple[str, int, float]


def _lines(data: bytes) -> Tuple[int, List[Row]]:
    whole = data[: data.rfind(b"\n") + 1]  # the last line may still be being written
    return len(whole), [row for line in whole.splitlines() for row in _record(line)]


def _record(line: bytes) -> Iterator[Row]:
    try:
        record = json.loads(line)
    except (ValueError, RecursionError):
        return
    if not isinstance(record, dict):
        return
    step = next((record[key] for key in STEP_KEYS if _is_number(record.get(key))), 0)
    inner = record.get("data")
    if not math.isfinite(step):
        return
    for name, value in _flat(inner if isinstance(inner, dict) else record, ""):
        yield name, int(step), value


def _flat(data: Mapping[str, Any], prefix: str) -> Iterator[Tuple[str, float]]:
    for key, value in data.items():
        if isinstance(value, dict):
            yield from _flat(value, f"{prefix}{key}/")
        elif _is_number(value):
            yield f"{prefix}{key}", float(value)


def _is_number(value: object) -> bool:
    """A number that a float can hold: JSON has integers of any length."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return False
    return isinstance(value, float) or abs(value) <= sys.float_info.max


def _events(data: bytes) -> Tuple[int, List[Row]]:
    used = 0
    rows: List[Row] = []
    for end, record in records(data):
        used = end
        rows.extend(scalars(record))
    return used, rows


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
            found = self._watch.look()
            if found is not None:
                self._trip(found)
                return

    def close(self) -> None:
        """No look begins after this; one that is under way is waited for, as long as a slow disk may take."""
        self._closed.set()
        self._thread.join(10.0)
