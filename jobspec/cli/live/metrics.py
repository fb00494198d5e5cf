"""How far a run is, from what it logs while it goes on: metric files, else the metrics that it prints.

Each look reads what is new since the last one, and of a file seen for the first time only its end, so that a
look costs the same after a gigabyte as after a line. Prints nothing.
"""

from __future__ import annotations

import json
import math
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from jobspec.runs.paths import RunPaths
from jobspec.runtime.base.metric_groups import group_prefix
from jobspec.units import figure

JSONL_TAIL_BYTES = 256 * 1024  # a record of verl has about 6 KB
CONSOLE_TAIL_BYTES = 1024 * 1024  # between two steps programs print much else
EVENTS_BYTES = 64 * 1024 * 1024  # an event file has to be read from its start: larger ones are left alone
# In the order of display. A framework's own name, out of the plan, comes before these.
NAMES: dict[str, tuple[str, ...]] = {
    "reward": ("reward", "rewards/mean", "reward/mean", "train/reward", "critic/rewards/mean",
               "critic/score/mean", "reward/avg_raw_reward"),
    "loss": ("loss", "train/loss", "actor/loss", "actor/pg_loss"),
    "grad norm": ("grad_norm", "train/grad_norm", "actor/grad_norm"),
    "tokens/s": ("perf/tokens_per_s", "tokens_per_s", "tokens_per_second", "performance/tokens_per_sec",
                 "perf/throughput"),
}  # fmt: skip
KNOWN = frozenset(name for names in NAMES.values() for name in names)
TRAINING = ("train/", "actor/", "training/")
NOT_TRAINING = frozenset({"agent", "ray", "ray-probe"})  # logs of jobspec's own and of Ray's start


@dataclass(frozen=True)
class Progress:
    """The newest step that the metrics show, out of those planned (0: not known), and its figures.

    `metric` and `value` are the reward, or what the spec asks to rise; `figures` are all that are known by
    their names for people, in the order of display.
    """

    step: int | None = None
    steps: int = 0
    metric: str = ""
    value: float | None = None
    figures: tuple[tuple[str, float], ...] = ()

    def text(self) -> str:
        """`12 of 60`, `12`, or nothing."""
        if self.step is None:
            return f"0 of {self.steps}" if self.steps else ""
        return f"{self.step} of {self.steps}" if self.steps else str(self.step)

    def figures_text(self) -> str:
        """`reward 0.5  loss 0.01  grad norm 0.2  1200 tokens/s`, as far as they are logged."""
        words = [
            f"{figure(value)} {name}" if name == "tokens/s" else f"{name} {figure(value)}"
            for name, value in self.figures
        ]
        return "  ".join(words)

    def figure(self, name: str) -> float | None:
        return dict(self.figures).get(name)


NO_PROGRESS = Progress()


@dataclass
class ProgressReader:
    """Reads a run's progress again and again; see the head of this file for what a look costs."""

    run: RunPaths
    _attempt: int = 0
    _expect: Mapping[str, Any] = field(default_factory=dict)
    _tails: dict[Path, _Tail] = field(default_factory=dict)
    _latest: dict[str, float] = field(default_factory=dict)
    _step: int | None = None
    _from_files: bool = False

    def read(self) -> Progress:
        """The progress of the newest attempt, as far as it is on disk now."""
        if not self._expect:
            self._expect = _expect(self.run)
        attempts = self.run.attempts()
        if attempts and attempts[-1] != self._attempt:
            self._start(attempts[-1])
        if attempts:
            self._look(self.run.attempt(attempts[-1]))
        return self._progress()

    def _start(self, attempt: int) -> None:
        """A new attempt may resume anywhere: nothing of the one before counts."""
        self._attempt, self._step, self._from_files = attempt, None, False
        self._tails.clear()
        self._latest.clear()

    def _look(self, folder: Path) -> None:
        metrics = folder / "metrics"
        for path in sorted(metrics.rglob("*.jsonl")):
            self._from_files |= self._take(path, JsonlTail, group_prefix(path, metrics))
        if self._from_files:
            return
        # Event files have more, and what is printed is often ahead of them.
        for path in sorted(metrics.rglob("*tfevents*")):
            self._take(path, EventsTail, group_prefix(path, metrics))
        for path in sorted((folder / "logs").glob("*/*.log")):
            if path.stem not in NOT_TRAINING:
                self._take(path, ConsoleTail)

    def _take(self, path: Path, kind: type[_Tail], prefix: str = "") -> bool:
        """Read what is new in a file; whether a step was in it."""
        tail = self._tails.setdefault(path, kind(path))
        found = False
        for step, metric, value in tail.read():
            found = found or step is not None
            self._step = step if step is not None else self._step
            self._latest[prefix + metric] = value
        return found

    def _progress(self) -> Progress:
        keys = {name: self._key(name) for name in NAMES}
        wanted = _mapping(self._expect.get("learning")).get("metric", "")
        metric = wanted if wanted in self._latest else keys["reward"]
        figures = tuple((name, self._latest[key]) for name, key in keys.items() if key)
        steps = self._expect.get("steps")
        value = self._latest.get(metric)
        return Progress(self._step, steps if isinstance(steps, int) else 0, metric, value, figures)

    def _key(self, name: str) -> str:
        own = _mapping(self._expect.get("metric_keys")).get(name, "")
        return next((key for key in (own, *NAMES[name]) if key in self._latest), "")


def _expect(run: RunPaths) -> Mapping[str, Any]:
    try:
        expect = json.loads(run.plan.read_text(encoding="utf-8")).get("expect")
    except (OSError, ValueError, AttributeError):
        return {}
    return _mapping(expect)


def _mapping(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}


Value = tuple[int | None, str, float]


class _Tail(ABC):
    """The end of a file, then what is added to it. A file that became shorter is read as a new one."""

    first_bytes = JSONL_TAIL_BYTES

    def __init__(self, path: Path) -> None:
        self._path = path
        self._offset: int | None = None

    def read(self) -> Iterable[Value]:
        """Values that are new since the last call; none when the file cannot be read."""
        try:
            with self._path.open("rb") as file:
                size = file.seek(0, 2)
                if self._offset is None or size < self._offset or size - self._offset > self.first_bytes:
                    self._offset = max(0, size - self.first_bytes)
                    self.reset(cut=self._offset > 0)
                file.seek(self._offset)
                data = file.read(self.first_bytes)
        except OSError:
            return []
        self._offset += len(data)
        return list(self.values(data))

    @abstractmethod
    def reset(self, cut: bool) -> None:
        """Forget what was read; `cut` says that the next bytes may start inside a line."""

    @abstractmethod
    def values(self, data: bytes) -> Iterator[Value]:
        """Values in `data`, which follows what came before."""


class JsonlTail(_Tail):
    """Metrics of JSON lines, ours or verl's."""

    def reset(self, cut: bool) -> None:
        self._rest = b""

    def values(self, data: bytes) -> Iterator[Value]:
        from jobspec.metrics.readers import record_rows

        # A first line that is cut is no whole JSON and left out like a torn one.
        *lines, self._rest = (self._rest + data).split(b"\n")
        for line in lines:
            for row in record_rows(line):
                yield row.step, row.metric, row.value


class EventsTail(_Tail):
    """Scalars of a TensorBoard event file, which has no way in but its start."""

    first_bytes = EVENTS_BYTES

    def reset(self, cut: bool) -> None:
        from jobspec.metrics.event_files import EventReader

        self._reader, self._damaged = EventReader(), cut

    def values(self, data: bytes) -> Iterator[Value]:
        from jobspec.metrics.event_files import DamagedError

        if self._damaged:
            return
        try:
            for row in self._reader.feed(data):
                # NeMo-RL counts seconds, not steps, for what it samples of nodes.
                step = row.step if row.metric.startswith(TRAINING) or row.metric in KNOWN else None
                yield step, row.metric, row.value
        except DamagedError:
            self._damaged = True


class ConsoleTail(_Tail):
    """Metrics that a program prints."""

    first_bytes = CONSOLE_TAIL_BYTES

    def reset(self, cut: bool) -> None:
        from jobspec.metrics.console import ConsoleReader

        self._reader = ConsoleReader(str(self._path))
        self._skip = cut

    def values(self, data: bytes) -> Iterator[Value]:
        if self._skip and b"\n" in data:
            data, self._skip = data[data.find(b"\n") + 1 :], False
        for row in self._reader.feed(data):
            if not math.isnan(row.value) or row.step is not None:
                yield row.step, row.metric, row.value
