"""Steps of the dicts that the Hugging Face Trainer prints: they name an epoch, but no step.

A dict belongs to the step at which the progress bar stood, where the bar moved between all dicts. Else dicts
are counted and multiplied by `logging_steps`: the stated number, or what the bar's last state says. The steps
are then inferred. Source: transformers `trainer.py` `Trainer.log`, `trainer_callback.py` ProgressCallback.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import groupby, pairwise

Values = Sequence[tuple[str, float]]
# Bars of the Trainer have no name, those of SkyRL and verl these; other programs' bars have others.
BAR = re.compile(
    r"^\s*(Training (?:Batches Processed|Progress): *)?\d{1,3}%\|[^|]*\| *(\d{1,15})/(\d{1,15}) \["
)
TOTAL = re.compile(r"Total optimization steps = ([\d,]{1,20})")
LOGGING_STEPS = re.compile(r"\blogging_steps['\"]?(?:=|:| )\s*(\d{1,9})\b(?![.])")
SWIFT_STEP = re.compile(r"'global_step/max_steps': '(\d{1,15})/(\d{1,15})'")  # ms-swift adds it to the dicts
BEGIN = "***** Running training *****"
RESUMED = re.compile(
    r"(?:Continuing|Resuming) training from (?:checkpoint with epoch \d+ and )?global step (\d{1,15})"
)
OWN_MARKS = (
    b"***** Running training",
    b"Total optimization steps",
    b"logging_steps",
    b"Continuing training from",
    b"Resuming training from",
)
AT_START = "00:00<?"  # of a bar that was just made
EPOCH, LOSS = "epoch", "loss"


@dataclass(frozen=True)
class Logged:
    """One dict: its line, whose output it stands in, the part of the log, and the bar's state before it."""

    line: int
    stream: str
    part: int
    trains: bool
    done: int


@dataclass
class TrainerSteps:
    """Collects the dicts of a log in their order; `steps` then says which step each line belongs to."""

    logged: list[Logged] = field(default_factory=list)
    total: int = 0
    every: int = 0
    part: int = 0
    bars: dict[str, tuple[int, int]] = field(default_factory=dict)
    totals: Counter[int] = field(default_factory=Counter)
    last: dict[str, tuple[str, float, int]] = field(default_factory=dict)
    resumed: dict[int, int] = field(default_factory=dict)  # the step from which a part goes on

    def note(self, text: str) -> None:
        """Take what a line of the Trainer says about all steps."""
        if BEGIN in text:
            self.part += 1
            self.bars.clear()
        if "optimization" in text and (match := TOTAL.search(text)):
            self.total = max(self.total, int(match[1].replace(",", "") or 0))
        if "training from" in text and (match := RESUMED.search(text)):
            self.resumed[self.part] = int(match[1])
        if match := SWIFT_STEP.search(text):
            self.total = max(self.total, int(match[2]))
        if "logging_steps" in text and (match := LOGGING_STEPS.search(text)):
            self.every = self.every or int(match[1])

    def bar(self, stream: str, text: str) -> bool:
        """Take a state of the training's bar; the bar of an evaluation has another total."""
        match = BAR.match(text)
        if match is None:
            return False
        done, total = int(match[2]), int(match[3])
        if match[1]:
            self.total = max(self.total, total)
        known = self.total or self.bars.get(stream, (0, total))[1]
        if total != known:
            return False
        if text.startswith(AT_START, match.end()) and done > 0:
            self.resumed.setdefault(self.part, done)
        self.bars[stream] = done, total
        self.totals[total] += 1
        return True

    def add(self, line: int, stream: str, text: str, values: Values) -> None:
        """Take a dict without a step, if it is one of the Trainer's."""
        found = dict(values)
        names = found.keys()
        if EPOCH not in names and not (LOSS in names and not text.endswith("}")):
            return
        before, epoch, stood = self.last.get(stream, ("", 0.0, 0))
        done, _ = self.bars.get(stream, (0, 0))
        # Each node prints the dict. A frozen or spoilt policy prints equal ones too, of different steps.
        norm = found.get("grad_norm", 0.0)
        again = text == before and norm != 0 and not math.isnan(norm)
        now = found.get(EPOCH, epoch)
        if now * 2 < epoch or (now < epoch and done < stood):
            self.part += 1  # the training began anew, or went on from a checkpoint
        self.last[stream] = text, now, done
        trains = not again and "train_runtime" not in names and not any(n.startswith("eval_") for n in names)
        self.logged.append(Logged(line, stream, self.part, trains, done))

    @property
    def planned(self) -> int:
        """The steps that the Trainer announced, else the commonest total of its bars; 0 where neither is."""
        commonest = self.totals.most_common(1)
        return self.total or (commonest[0][0] if commonest and self.logged else 0)

    def steps(self) -> dict[int, int]:
        """The step of each line."""
        placed: dict[int, int] = {}
        ordered = sorted(self.logged, key=lambda one: (one.stream, one.part))
        for _, group in groupby(ordered, key=lambda one: (one.stream, one.part)):
            placed.update(self._placed(list(group)))
        return placed

    def _placed(self, group: list[Logged]) -> Iterator[tuple[int, int]]:
        base = self.resumed.get(group[0].part, 0)
        counts = [max(0, one.done - base) for one in group if one.trains]
        moves = bool(counts) and counts[0] > 0 and all(a < b for a, b in pairwise(counts))
        left = self.planned - base if self.planned > base else math.inf
        stated = self.every if self.every * len(counts) <= left else 0
        gaps = {b - a for a, b in pairwise(counts)}
        if counts[:1] == [0] and len(gaps) == 1 and max(gaps) > 0:
            stated = stated or max(gaps)  # the bar moves only after each dict
        every = stated or max(1, int(_each(counts) + 0.5))
        steps = iter(counts if moves else [every * at for at in range(1, len(counts) + 1)])
        step = base if counts else group[0].done
        for one in group:
            step = base + next(steps) if one.trains else step
            yield one.line, step


def _each(counts: Sequence[int]) -> float:
    """The steps that one dict stands for: as far as the bar had moved, over the dicts before it moved last.

    The dict behind the move may be of a later step than the bar's.
    """
    last = max((at for at in range(1, len(counts)) if counts[at] > counts[at - 1]), default=0)
    if 0 < last < len(counts) - 1:
        return math.ceil(counts[-1] / (last + 1))
    return counts[-1] / len(counts) if counts else 1.0
