"""How far a run is, by the metric files that it writes, else by the metrics that it prints.

Each look reads only the bytes that are new since the last look. The first look at a file reads only its end,
so a look costs the same after a gigabyte as after a line. Prints nothing.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from jobspec.metrics.names import FIGURES, LIKELY, REWARD, TOKENS, find_metric
from jobspec.runs.paths import RunPaths
from jobspec.runtime.base.event_files import EventDecoder
from jobspec.runtime.base.metric_files import (
    EVENTS,
    LINES,
    Decoder,
    LineDecoder,
    Row,
    Tail,
    files_below,
    group_prefix,
    kind_of,
)
from jobspec.runtime.base.run_files import parse_json, read_text
from jobspec.units import figure

JSONL_TAIL_BYTES = 256 * 1024  # a record of verl has about 6 KB
CONSOLE_TAIL_BYTES = 1024 * 1024  # between two steps programs print much else
RANKS_TAIL_BYTES = 32 * 1024 * 1024  # of all ranks behind the first together: they mostly repeat its steps
LEAST_TAIL_BYTES = 16 * 1024  # of each of them
EVENTS_BYTES = 64 * 1024 * 1024  # an event file is read from its start: larger ones are skipped
KNOWN = frozenset(name for figure_name in FIGURES for name in LIKELY[figure_name])
TRAINING = ("train/", "actor/", "training/")
LATER_RANK = re.compile(r".*-[1-9]\d*")
NOT_TRAINING = re.compile(r"agent|ray|ray-probe|service-.*")  # of jobspec itself, Ray's start, and services


@dataclass(frozen=True)
class Progress:
    """The newest logged step, the number of planned steps (0: not known), and the step's figures.

    `metric` and `value` are the reward, or the metric that the spec asks to rise. `figures` are all known
    figures under their displayed names, in the order of display.
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
        """The logged figures, such as `reward 0.5  loss 0.01  grad norm 0.2  1200 tokens/s`."""
        words = [
            f"{figure(value)} {name}" if name == TOKENS else f"{name} {figure(value)}"
            for name, value in self.figures
        ]
        return "  ".join(words)

    def figure(self, name: str) -> float | None:
        return dict(self.figures).get(name)


NO_PROGRESS = Progress()


@dataclass
class ProgressReader:
    """Reads a run's progress repeatedly; the module's docstring says what a look costs."""

    run: RunPaths
    _attempt: int = 0
    _expect: Mapping[str, Any] = field(default_factory=dict)
    _tails: dict[Path, Tail] = field(default_factory=dict)
    _latest: dict[str, float] = field(default_factory=dict)
    _step: int | None = None
    _from_files: bool = False

    def read(self) -> Progress:
        """The progress of the newest attempt that is on disk now."""
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
        paths = files_below(metrics)
        for path in (path for path in paths if kind_of(path) == LINES):
            rows = self._new(path, _lines, JSONL_TAIL_BYTES)
            self._take(rows, group_prefix(path, metrics))
            self._from_files |= any(row.step is not None for row in rows)
        if self._from_files:
            return
        # Event files hold more metrics, but printed metrics are often ahead of them.
        for path in (path for path in paths if kind_of(path) == EVENTS):
            rows = [_training_step(row) for row in self._new(path, _events, EVENTS_BYTES)]
            self._take(rows, group_prefix(path, metrics))
        for path, only_end in _console_tails(folder):
            rows = self._new(path, _printed, only_end)
            self._take(row for row in rows if not math.isnan(row.value) or row.step is not None)

    def _new(self, path: Path, decoder: Callable[[bool], Decoder], only_end: int) -> list[Row]:
        tail = self._tails.get(path) or self._tails.setdefault(path, Tail(path, decoder, only_end))
        return [*tail.read(), *tail.last()]

    def _take(self, rows: Iterable[Row], prefix: str = "") -> None:
        for row in rows:
            self._step = row.step if row.step is not None else self._step
            self._latest[prefix + row.metric] = row.value

    def _progress(self) -> Progress:
        plan_names = _mapping(self._expect.get("metric_keys"))
        keys = {name: find_metric(name, plan_names, self._latest) for name in FIGURES}
        learnt = _mapping(self._expect.get("learning")).get("metric", "")
        metric = learnt if learnt in self._latest else keys[REWARD]
        figures = tuple((name, self._latest[key]) for name, key in keys.items() if key)
        steps = self._expect.get("steps")
        value = self._latest.get(metric)
        return Progress(self._step, steps if isinstance(steps, int) else 0, metric, value, figures)


_EXPECT = '\n  "expect": '  # as `plan_json` writes a key of the plan itself


def _expect(run: RunPaths) -> Mapping[str, Any]:
    """The plan's expectations. Only this part of jobspec's own text is parsed: a thousand plans are long."""
    try:
        text = read_text(run.plan)
        at = text.find(_EXPECT)
        if at < 0:
            return _mapping(parse_json(text).get("expect"))
        return _mapping(json.JSONDecoder().raw_decode(text, at + len(_EXPECT))[0])
    except (OSError, ValueError, AttributeError, RecursionError):
        return {}


def _console_tails(attempt: Path) -> Iterator[tuple[Path, int]]:
    """Each log that may show metrics, and how much of its end is read: later ranks share one amount."""
    found = sorted((attempt / "logs").glob("*/*.log"))
    logs = [path for path in found if not NOT_TRAINING.fullmatch(path.stem)]
    later = {path for path in logs if LATER_RANK.fullmatch(path.stem)}
    share = min(CONSOLE_TAIL_BYTES, max(LEAST_TAIL_BYTES, RANKS_TAIL_BYTES // max(1, len(later))))
    for path in logs:
        yield path, share if path in later else CONSOLE_TAIL_BYTES


def _mapping(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}


def _lines(cut: bool) -> LineDecoder:
    return LineDecoder()  # a cut first line is no whole JSON: it is left out like a torn line


def _events(cut: bool) -> EventDecoder:
    return EventDecoder(damage="its start is not read" if cut else "")


def _printed(cut: bool) -> Decoder:
    from jobspec.metrics.console import ConsoleReader

    return ConsoleReader(skip_line=cut)


def _training_step(row: Row) -> Row:
    """The row, without its step unless it is a train step: NeMo-RL counts seconds for samples of nodes."""
    return row if row.metric.startswith(TRAINING) or row.metric in KNOWN else row._replace(step=None)
