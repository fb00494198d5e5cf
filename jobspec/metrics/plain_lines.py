"""Metrics that a program prints as text of its own: `step 3/200 | loss 0.12 | reward 0.4`.

The last resort of the console's reader: such a line has no agreed form, so it counts only where it names a
step, then nothing but pairs of a name and a number, and among the names a loss or a reward. prime-rl,
Megatron-LM and plain loops print so. Sources: prime-rl `trainer/rl/train.py`, Megatron-LM `training.py`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from sys import intern
from typing import NamedTuple

from jobspec.log_text import to_number, unwrap_scalars
from jobspec.metrics.table import Table
from jobspec.runtime.base.metric_files import Row
from jobspec.runtime.base.run_files import open_file

# Cheap tests before the costly one, in bytes.
MARKS = (b"loss", b"Loss", b"eward")
STEP_MARK = re.compile(rb"(?i)\b(?:step|iter|iteration|update)s?\b['\"]?[ \t:=#\[]{0,12}\d")
STEP = re.compile(
    r"(?i)(?:^|[\s\[(|,;:>-])(?:(?:train(?:ing)?|global|optimizer)[ _])?(?:step|iter|iteration|update)\b"
    r"[ \t:=#\[]{0,12}(\d{1,15})(?:[ \t]*/[ \t]*(\d{1,15}))?(?![\w.])[\])]?"
)
OTHER_STEP = re.compile(r"(?i)\b(?:micro|inner|mini|eval\w*|valid\w*|test\w*|sample|rollout|warm-?up)\b")
BAR = re.compile(rb"\| *(\d{1,15})/(\d{1,15}) \[[^\]]{5,60}?(?:it/s|s/it), ?([^\]]{3,2000})\]")
EPOCH = re.compile(r"(?i)\bepoch[ \t:=#\[]{0,4}(\d{1,9})(?![\w.])")
WIDE = re.compile(r"(?<=[:=])\s+")
SEPARATOR = re.compile(r"[|,;]|\t| - |\s{2,}")
PAIR = re.compile(
    r"^([A-Za-z][\w./@() -]{0,48}?)(?:\s*[:=]\s*|\s+)"
    r"([-+]?(?:\d+\.?\d*(?:[eE][-+]?\d+)?|\.\d+|nan|inf(?:inity)?))(?:\s*(?:%|[a-zA-Z]{1,6}(?:/[a-zA-Z]{1,6})?))?"
    r"(?:\s*(?:±|\+/?-|\().*)?$",
    re.IGNORECASE,
)
# `loss=0.1 reward=0.2` and `loss 0.1 reward 0.2`, with nothing but spaces between.
SPACED = re.compile(r"(?<=\d)\s+(?=[A-Za-z][\w./@-]*(?:\s?[:=]|\s+[-+]?\.?\d))")
SENTENCE = re.compile(
    r"\b(?:is|was|the|a|of|to|at|in|by|has|had|with|from|than|for|below|above|over|reached)$", re.IGNORECASE
)
NAMES = re.compile(r"(?:^|[_/@])(?:\w*loss|\w*rewards?)(?:$|[_/@])")
NOT_NAME = re.compile(r"[^\w/@-]+")
MAX_BYTES, MIN_SHARE = 4096, 0.5
BLOCK_BYTES, MAX_ROWS = 4 * 1024**2, 2_000_000


def is_plain(line: bytes) -> bool:
    """Whether the line may hold such metrics; true for few lines."""
    return len(line) <= MAX_BYTES and b"{" not in line and STEP_MARK.search(line) is not None


class PlainLine(NamedTuple):
    """`epoch` and `total`, the announced steps, are 0 where the line has none."""

    epoch: int
    step: int
    total: int
    values: list[tuple[str, float]]


def parse_plain(text: str) -> PlainLine | None:
    """What a line of metrics says; None for any other line."""
    found = STEP.search(text)
    if found is None or OTHER_STEP.search(text[: found.end()]):
        return None
    rest = SPACED.sub("|", WIDE.sub(" ", unwrap_scalars(text[found.end() :])))
    parts = [part for part in (piece.strip(" :-[]()>") for piece in SEPARATOR.split(rest)) if part]
    values = _pairs(parts)
    if not any(NAMES.search(name) for name, _ in values) or len(values) < MIN_SHARE * len(parts):
        return None
    epoch = EPOCH.search(text)
    return PlainLine(int(epoch[1]) if epoch else 0, int(found[1]), int(found[2] or 0), values)


def _pairs(parts: Iterable[str]) -> list[tuple[str, float]]:
    values = []
    for part in parts:
        pair = PAIR.match(part.strip())
        value = to_number(pair[2]) if pair is not None else None
        if pair is not None and value is not None and not SENTENCE.search(pair[1]):
            values.append((intern(NOT_NAME.sub("_", pair[1].lower()).strip("_")), value))
    return values


@dataclass
class PlainSteps:
    """The step over all epochs, since some programs count anew in each; and the most steps announced."""

    epoch: int = 0
    base: int = 0
    last: int = 0
    total: int = 0

    def note(self, line: PlainLine) -> int:
        """The step of a line."""
        if line.epoch > self.epoch > 0 and line.step <= self.last - self.base:
            self.base = self.last
        self.epoch = line.epoch or self.epoch
        self.last = max(self.last, self.base + line.step)
        self.total = max(self.total, 0 if self.base else line.total)
        return self.base + line.step


def read_bars(path: Path, source: str) -> Table:
    """What a training's progress bar says behind its time: `12/100 [00:12<01:30, 1.0s/it, loss=0.5]`.

    Nothing where bars of one total begin anew, since their counts are then no train steps.
    """
    rows: dict[tuple[str, int], Row] = {}
    totals: dict[int, int] = {}
    number, rest = 1, b""
    try:
        with open_file(path) as file:
            while block := file.read(BLOCK_BYTES):
                *pieces, rest = re.split(rb"([\r\n])", rest + block)
                for piece in pieces:
                    number += piece == b"\n"
                    found = (
                        BAR.search(piece) if b"=" in piece and any(mark in piece for mark in MARKS) else None
                    )
                    if found is None:
                        continue
                    step, total = int(found[1]), int(found[2])
                    if step < totals.get(total, 0) or len(rows) > MAX_ROWS:
                        return Table()
                    totals[total] = step
                    for name, value in _pairs(found[3].decode("utf-8", "replace").split(",")):
                        rows[name, step] = Row(name, step, value, None, source, number)
    except OSError:
        return Table()
    if len(totals) != 1:
        return Table()
    return Table(tuple(rows.values()), planned=max(totals))
