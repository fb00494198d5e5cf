"""Signs of work among the lines that a command prints: new kinds of lines, steps that rise, bars that move.

A line of a shape that was there before is no work, however often it comes: a retry loop prints for ever. Nor
is a line that only says that something waits. Numbers count where they are those of steps.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Dict, List, Optional, Set

START, STEP, SAVE, EVAL, GENERATE = "start", "step", "save", "evaluation", "generation"
MAX_SHAPES = 5000  # after so many kinds a further one is the program's own text
SHAPE_CHARS = 200
_WAITS = re.compile(
    r"(?i)\bwait|poll|heartbeat|health|\bstill\b|\bidle\b|pending|retry|\bretries\b|re-?connect|timed? ?out"
    r"|attempt|unavailable|refused|/metrics"
)
_NUMBERS = re.compile(r"(?:0x)?[0-9a-fA-F]*\d[0-9a-fA-F]*(?:[-.:][0-9a-fA-F]*\d[0-9a-fA-F]*)*")
_STEP = re.compile(
    r"(?i)\b(step|iter|iteration|update|episode|round|epoch|global_step)s?'?\"?[ :=#/\[]{1,3}(\d+)"
)
_BAR = re.compile(r"([^|\r]{0,60}?)\d{1,3}%\|[^|]*\| *(\d+(?:\.\d+)?)\w?/")
_RECORD = re.compile(r"[{ '\"](?:loss|reward|grad_norm|kl)\w*['\"]?[:=] *-?\d")
_SAVES = r"\bsav(?:e|es|ing)\b.{0,20}\bcheckpoint|\bcheckpoint.{0,20}\bsav(?:e|ing)\b|Started: '(?:\w+_)?save"
_PHASES = (
    (SAVE, re.compile(f"(?i){_SAVES}")),
    (EVAL, re.compile(r"(?i)\b(?:validation|evaluat(?:e|es|ing|ion))\b|Started: 'eval")),
    (GENERATE, re.compile(r"(?i)\bgenerat(?:e|es|ing) (?:responses|rollouts|samples)|Started: 'generate")),
)
_ENDED = re.compile(r"(?i)\b(?:saved|finished|done|took|completed?)\b|Finished: '")
_OF_A_PHASE = re.compile(r"(?i)checkpoint|validation|evaluat|generat|Finished: '")
_ENGINE = re.compile(r"throughput: *(\d+(?:\.\d+)?) tokens/s.*?Running: *(\d+)", re.I)


@dataclass
class LineSigns:
    """What the lines so far have shown. `work` counts the signs, `steps` the train steps alone."""

    work: int = 0
    steps: int = 0
    phase: str = START
    last: str = ""
    lines: int = 0
    engine: str = ""  # the last line of an engine that generates
    _shapes: Set[str] = field(default_factory=set)
    _numbers: Dict[str, float] = field(default_factory=dict)
    _records: Dict[str, str] = field(default_factory=dict)

    def feed(self, lines: List[str]) -> None:
        for line in lines:
            self._line(line.rsplit("\r", 1)[-1].strip())

    def _line(self, line: str) -> None:
        if not line:
            return
        self.lines += 1
        self._set_phase(line)
        if found := _ENGINE.search(line):
            self.engine = line[:SHAPE_CHARS] if float(found[1]) > 0 else ""
        shape = _NUMBERS.sub("0", line[:SHAPE_CHARS])
        known = shape in self._shapes
        if len(self._shapes) < MAX_SHAPES:
            self._shapes.add(shape)
        waits = _WAITS.search(line) is not None
        step = None if waits else self._rises(_STEP.findall(line), shape, line)
        if step or (not known and not waits and len(self._shapes) < MAX_SHAPES):
            self.work += 1
            self.last = line[:SHAPE_CHARS]

    def _rises(self, steps: List["tuple[str, str]"], shape: str, line: str) -> bool:
        """Whether a number of steps in the line is higher than ever, a bar has moved, or a record is new."""
        rises = False
        for name, number in steps:
            if float(number) > self._numbers.get(name.lower(), -1.0):
                self._numbers[name.lower()] = float(number)
                self.steps += 1
                self.phase = STEP if self.phase == START else self.phase
                rises = True
        if bar := _BAR.search(line):
            key, done = f"|{_NUMBERS.sub('0', bar[1].strip())}", float(bar[2])
            before: Optional[float] = self._numbers.get(key)
            self._numbers[key] = done
            rises = rises or before is None or done != before
        if _RECORD.search(line) and self._records.get(shape) != line:
            self._records[shape] = line
            rises = True
        return rises

    def _set_phase(self, line: str) -> None:
        kind = next((name for name, pattern in _PHASES if pattern.search(line)), "")
        if kind and not _ENDED.search(line):
            self.phase = kind
        elif self.phase not in (START, STEP) and (
            _STEP.search(line) or (_ENDED.search(line) and _OF_A_PHASE.search(line))
        ):
            self.phase = STEP if self.steps else START
