"""A resume in files of a TRL run that jobspec did not launch: what the Trainer prints, and what it loads.

The Trainer prints from which step it goes on, not what it loads. It loads optimizer, scheduler and random
state where their files lie in the checkpoint, and passes over those that do not.
Source: transformers `trainer.py`, 4 ("Continuing") and 5 ("Resuming"): `_load_optimizer_and_scheduler`,
`_load_rng_state`.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable
from itertools import pairwise
from typing import TYPE_CHECKING

from jobspec.frameworks.shared.metric_deliverables import RESUME
from jobspec.log_search import Hints, find_lines
from jobspec.log_text import clean
from jobspec.verdict import Deliverable, EvidenceItem, Status

if TYPE_CHECKING:
    from jobspec.evidence.evidence import Evidence

STATE = "trainer_state.json"
BEGAN, WENT_ON, NO_RANDOM = "***** Running training *****", "global step ", "Didn't find an RNG file"
STEP = re.compile(
    r"(?:Continuing training from|Resuming training from checkpoint with epoch \d+ and) global step (\d+)\s*$"
)
LOADED = {
    "optimizer": re.compile(r"^optimizer(?:_\d+)?(?:\.(?:pt|bin)$|/)|optim_states\.pt$"),
    "scheduler": re.compile(r"^scheduler\.pt$"),
    "random state": re.compile(r"^rng_state(?:_\d+)?\.pth$"),
    "trainer state": re.compile(rf"^{re.escape(STATE)}$"),
}
INFERRED = (
    "that optimizer, scheduler and random state were loaded is inferred: their files lie in the checkpoint,"
    " and the Trainer loads what lies there"
)


def judge_found(evidence: Evidence) -> Deliverable:
    """`Pass` where a second process went on from a checkpoint with all state, trained, and saved again."""
    began, went_on = _lines(evidence)
    if not went_on:
        lack = "that a process went on with the saved optimizer and random state, which TRL's own output does"
        return _blocked(f"{lack} not name")
    step, line = went_on[-1]
    if not any(first.file != line.file or first.line < line.line for first in _others(began, line)):
        return _blocked(f"a process before the one that went on from step {step}", line)
    saved = next((one for one in evidence.checkpoints if one.step == step), None)
    if saved is None:
        return _blocked(f"the checkpoint of step {step} from which a process went on", line)
    lacks = [what for what, names in LOADED.items() if not any(map(names.search, saved.files))]
    if lacks:
        return _blocked(f"the {', '.join(lacks)} in `{saved.path}`, from which a process went on", line)
    problem = _after(evidence, step)
    if problem:
        return _blocked(problem, line)
    later = [one.step for one in evidence.checkpoints if one.step > step and STATE in one.files]
    if not later:
        return _blocked(f"a checkpoint after step {step}, from which a process went on", line)
    items = (line, EvidenceItem(saved.path, text=f"checkpoint of step {step}, {saved.bytes} bytes"))
    reason = f"a second process went on from step {step}, and saved step {max(later)}"
    return Deliverable(RESUME, Status.PASS, items, reason, limits=(INFERRED,))


def _lines(evidence: Evidence) -> tuple[list[EvidenceItem], list[tuple[int, EvidenceItem]]]:
    """Where trainings began, and from which steps they went on, but for those that found no random state."""
    began, went_on = list[EvidenceItem](), list[tuple[int, EvidenceItem]]()
    for log in evidence.last.logs if evidence.last is not None else ():
        own = list[tuple[int, EvidenceItem]]()
        for hit in find_lines(evidence.root / log.path, Hints((BEGAN, WENT_ON, NO_RANDOM))):
            text = clean(hit.text).strip()
            item, found = EvidenceItem(log.path, hit.number, text[:300]), STEP.search(text)
            if BEGAN in text:
                began.append(item)
            elif found is not None:
                own.append((int(found[1]), item))
            elif NO_RANDOM in text:
                own = own[:-1]
        went_on += own
    return began, sorted(went_on, key=lambda one: one[0])


def _others(began: Iterable[EvidenceItem], line: EvidenceItem) -> list[EvidenceItem]:
    """The starts of other trainings: of those above the line in its log the last is its own."""
    own = [first for first in began if first.file == line.file and first.line < line.line][-1:]
    return [first for first in began if first not in own]


def _after(evidence: Evidence, step: int) -> str:
    """What the values after the step lack; "" where they go on at once, are finite and reach the end."""
    rows = [row for row in evidence.metrics.series("reward") if row.step is not None]
    steps = sorted({row.step for row in rows if row.step is not None})
    after = [one for one in steps if one > step]
    gap = min((later - earlier for earlier, later in pairwise(steps)), default=1)
    if not after or after[0] - step > gap:
        return f"train steps right after step {step}, from which a process went on"
    if after[-1] < evidence.plan.expect.steps:
        return f"train steps up to {evidence.plan.expect.steps} after the resume at step {step}"
    bad = next((row for row in rows if row.step in after and not math.isfinite(row.value)), None)
    return f"a finite `reward` of step {bad.step} after the resume" if bad is not None else ""


def _blocked(lack: str, *items: EvidenceItem) -> Deliverable:
    return Deliverable(RESUME, Status.BLOCKED, items, f"not shown: {lack}")
