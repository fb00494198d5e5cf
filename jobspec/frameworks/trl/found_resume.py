"""A resume in files of a TRL run that jobspec did not launch: what the Trainer prints, and what it loads.

The Trainer prints from which step it goes on, not what it loads. It loads optimizer, scheduler and random
state where their files lie in the checkpoint, and passes over those that do not.
Source: transformers `trainer.py`, 4 ("Continuing") and 5 ("Resuming"): `_load_optimizer_and_scheduler`,
`_load_rng_state`.
"""

from __future__ import annotations

import math
import os
import re
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING

from jobspec.evidence.refused_checkpoint import refused
from jobspec.evidence.resume_lines import resume_line
from jobspec.frameworks.shared.metric_deliverables import RESUME
from jobspec.frameworks.trl.began_anew import began_anew, given, rows_of
from jobspec.frameworks.trl.listed import only_listed, with_listed
from jobspec.log_search import Hints, find_lines
from jobspec.log_text import clean
from jobspec.metrics.readers import read_json
from jobspec.metrics.trainer_steps import BEGIN, RESUMED, TOTAL
from jobspec.metrics.training_health import lost_at
from jobspec.verdict import Deliverable, EvidenceItem, Status

if TYPE_CHECKING:
    from jobspec.evidence.evidence import Checkpoint, Evidence

STATE = "trainer_state.json"
WENT_ON, NO_RANDOM = "global step ", "Didn't find an RNG file"
PLANS = "Total optimization steps = "
NONE_LEFT = "resume with more steps in all (`max_steps`, `num_train_epochs`), or from an earlier checkpoint"
SAVES = "Saving model checkpoint to "
SAVED = re.compile(rf"{SAVES}\S*checkpoint-(\d+)\s*$")
# Source: transformers `trainer.py`; DeepSpeed and FSDP save the optimizer in folders of their own.
PARTS = {
    "weights": re.compile(
        r"(?:^|/)(?:adapter_)?(?:pytorch_)?model[^/]*(?:\.safetensors|\.bin|/)|model_fsdp_\d|model_states"
    ),
    "an optimizer": re.compile(r"optim"),
}
SHARD = re.compile(r"-\d{5}-of-(\d{5})(\.safetensors|\.bin)$")
LOADED = {
    "weights": PARTS["weights"],
    "optimizer": re.compile(r"^optimizer(?:_\d+)?(?:\.(?:pt|bin)$|/)|optim_states\.pt$"),
    "scheduler": re.compile(r"^scheduler\.pt$"),
    "random state": re.compile(r"^rng_state(?:_\d+)?\.pth$"),
    "trainer state": re.compile(rf"^{re.escape(STATE)}$"),
}
MIN_ALIKE = 3  # values of one record
NOT_READ = "not shown by a line that jobspec knows: a process that goes on from a saved step and trains"
INFERRED = (
    "that optimizer, scheduler and random state were loaded is inferred: the checkpoint has their files,"
    " and the Trainer loads what lies there"
)

BY_OPTION = (
    "that a process went on from step {} is inferred: it was given that checkpoint,"
    " and its records begin later"
)
NOT_SHOWN = "that a process loaded a saved step and trained on"


@dataclass
class Training:
    """What one process says: where it began, from which step it went on, and which steps it saved."""

    began: EvidenceItem
    step: int = 0
    planned: int = 0
    total: EvidenceItem | None = None  # the line that has `planned`
    went_on: EvidenceItem | None = None
    saved: set[int] = field(default_factory=set)

    @property
    def had_none_left(self) -> bool:
        return self.total is not None and self.planned <= self.step


def judge_found(evidence: Evidence) -> Deliverable:
    """`Pass` where a process went on from another's checkpoint with all state, and saved again."""
    unfit = refused(evidence)
    if unfit is not None:
        item = EvidenceItem(unfit.file, unfit.line, unfit.text)
        return Deliverable(RESUME, Status.FAIL, (item,), f"a checkpoint was refused: {unfit.text}")
    trainings = list(_trainings(evidence))
    went_on = (one for one in trainings if one.went_on)
    resumed = max(went_on, key=lambda one: (not one.had_none_left, one.step), default=None)
    if resumed is None:
        if (found := began_anew(evidence)) is not None:
            return found
        resumed = None if any(one.step for one in trainings) else _by_option(evidence)
    if resumed is None or resumed.went_on is None:
        lack = f"the random state at step {anew.step}" if (anew := _without_random(trainings)) else ""
        return _blocked(lack) if lack else _not_read(evidence)
    step, line = resumed.step, resumed.went_on
    last = evidence.metrics.last_step() or 0
    if resumed.total is not None and resumed.had_none_left and step >= last:
        reason = f"a process was to go on from step {step}, with {resumed.planned} steps in all:"
        reason += " none was left, jobspec read no later one, and that it trains on is not shown"
        return Deliverable(RESUME, Status.BLOCKED, (line, resumed.total), reason, fix=NONE_LEFT)
    metric = trained_by(evidence)
    lost = lost_at(evidence.metrics.series(metric), step, falls=metric == "loss")
    if lost:
        reason = f"a process went on from step {step}, and {lost}: like a start from other weights"
        return Deliverable(RESUME, Status.FAIL, (line,), reason)
    saved = next((one for one in evidence.checkpoints if one.step == step), None)
    if saved is None:
        return _blocked(f"the checkpoint of step {step} from which a process was to go on", line)
    told = any(step in one.saved and _before(one, resumed) for one in trainings)
    if not told and not _logged_elsewhere(evidence, saved, line):
        return _blocked(
            f"that an earlier process wrote the checkpoint of step {step}, from which one was to go on", line
        )
    place = os.path.relpath(saved.path, evidence.root)
    saved, listing = with_listed(evidence, saved)
    lacks = [what for what, names in LOADED.items() if not any(map(names.search, filled(saved)))]
    if lacks:
        return _blocked(f"the {', '.join(lacks)} in `{place}`, from which a process was to go on", line)
    if part := missing_shard(saved):
        return _blocked(f"`{part}` in `{place}`, from which a process was to go on", line)
    problem = _after(evidence, step, metric)
    if problem:
        return _blocked(problem, line)
    if not _values(saved, metric):  # then the file of a process that went on is that of one that began anew
        lack = f"that a later checkpoint continues `{place}`, whose {STATE} has no `{metric}` to compare"
        return _blocked(f"{lack}: `logging_steps` has to be at most the step of the save", line)
    own = (one for one in evidence.checkpoints if one.step in resumed.saved)
    later = [one.step for one in own if _continues(saved, one, metric)]
    if not later:
        return _blocked(f"a later checkpoint of that process whose history holds that of step {step}", line)
    limits: tuple[str, ...] = (INFERRED,)
    if not RESUMED.search(line.text):
        limits += (BY_OPTION.format(step),)
    items = (line, EvidenceItem(saved.path, text=f"checkpoint of step {step}, {saved.bytes} bytes"))
    reason = f"a second process went on from step {step}, and saved step {max(later)}"
    told = any(names.search(file) for names in LOADED.values() for file in listing.files)
    limits += (only_listed(saved, listing),) if told else ()
    return Deliverable(RESUME, Status.PASS, items, reason, limits=limits)


def filled(checkpoint: Checkpoint) -> tuple[str, ...]:
    """Its files that are not empty, as those of a save that a full disk cut off are."""
    return tuple(name for name in checkpoint.files if not _is_empty(Path(checkpoint.path, name)))


def missing_shard(checkpoint: Checkpoint) -> str:
    """The first part of its weights that its other parts' names count, and that is not there."""
    files = set(checkpoint.files)
    for name in checkpoint.files:
        if part := SHARD.search(name):
            stem, count, suffix = name[: part.start()], part[1], part[2]
            every = (f"{stem}-{at:0{len(count)}d}-of-{count}{suffix}" for at in range(1, int(count) + 1))
            return next((one for one in every if one not in files), "")
    return ""


def _is_empty(path: Path) -> bool:
    try:
        return path.stat().st_size == 0
    except OSError:
        return False


def _trainings(evidence: Evidence) -> Iterator[Training]:
    """The trainings of each log; of one that found no random state it is not said that it went on."""
    for log in evidence.last.logs if evidence.last is not None else ():
        own: Training | None = None
        for hit in find_lines(evidence.root / log.path, Hints((BEGIN, PLANS, WENT_ON, NO_RANDOM, SAVES))):
            text = clean(hit.text).strip()
            item = EvidenceItem(log.path, hit.number, text[:300])
            if BEGIN in text:
                if own is not None:
                    yield own
                own = Training(item)
            elif own is None:
                if found := RESUMED.search(text):  # the lines above it are not in the log
                    own = Training(item, step=int(found[1]), went_on=item)
            elif found := TOTAL.search(text):
                own.planned, own.total = int(found[1].replace(",", "")), item
            elif found := RESUMED.search(text):
                own.step, own.went_on = int(found[1]), item
            elif NO_RANDOM in text:
                own.went_on = None
            elif found := SAVED.search(text):
                own.saved.add(int(found[1]))
        if own is not None:
            yield own


def _by_option(evidence: Evidence) -> Training | None:
    """A process that was given a checkpoint, and whose own records begin behind its step.

    The Trainer says so only where its level of logging is `info`.
    """
    for log in evidence.last.logs if evidence.last is not None else ():
        item, path, step = given(evidence, log.path)
        steps = {row.step for row in rows_of(evidence, log.path) if item and (row.line or 0) > item.line}
        own = {one for one in steps if one is not None}
        if item is not None and path != "True" and own and min(own) > step:
            later = (one for one in evidence.checkpoints if step < one.step <= max(own))
            return Training(item, step, went_on=item, saved={one.step for one in later})
    return None


def _not_read(evidence: Evidence) -> Deliverable:
    logs = evidence.last.logs if evidence.last is not None else ()
    tried = next((line for log in logs if (line := resume_line(evidence.root, log.path)) is not None), None)
    if tried is None:
        return Deliverable(RESUME, Status.BLOCKED, reason=NOT_READ)
    _, path, step = given(evidence, tried.file)
    last = evidence.metrics.last_step() or 0
    ended = path not in ("", "True") and step >= last > 0
    later = f" from step {step}: jobspec read no train step after it" if ended else ""
    return _blocked(f"{NOT_SHOWN}, as {tried.file}:{tried.line} says that one was to{later}", tried)


def _before(first: Training, then: Training) -> bool:
    """Whether a training stands above in the same log; logs of their own tell no order."""
    return first.began.file != then.began.file or first.began.line < then.began.line


def _without_random(trainings: Iterable[Training]) -> Training | None:
    """A process that says from which step it goes on, and that it found no random state."""
    return next((one for one in trainings if one.step), None)


def _logged_elsewhere(evidence: Evidence, saved: Checkpoint, begin: EvidenceItem) -> bool:
    """Whether another log, or this one above the line, has the last values of the checkpoint's history."""
    history = [row for row in read_json(Path(saved.path, STATE)) if (row.step or 0) <= saved.step]
    last = {row.metric: row.value for row in history if row.step == max(one.step or 0 for one in history)}
    lines: Counter[tuple[str, int]] = Counter()
    for row in (*evidence.metrics.rows, *evidence.metrics.aside):
        if (
            row.line
            and (row.source != begin.file or row.line < begin.line)
            and row.metric in last
            and math.isclose(row.value, last[row.metric], rel_tol=1e-4)
        ):
            lines[row.source, row.line] += 1
    return max(lines.values(), default=0) >= min(MIN_ALIKE, len(last)) > 1


def _continues(saved: Checkpoint, later: Checkpoint, metric: str) -> bool:
    """Whether the later state holds the saved one's values, as of a Trainer that loaded it."""
    if later.step <= saved.step or STATE not in later.files:
        return False
    values = _values(later, metric)
    return (
        any((step or 0) > saved.step for step in values) and _values(saved, metric).items() <= values.items()
    )


def _values(saved: Checkpoint, metric: str) -> dict[int | None, float]:
    """The metric by step in the history of a checkpoint's state."""
    return {row.step: row.value for row in read_json(Path(saved.path, STATE)).series(metric)}


def trained_by(evidence: Evidence) -> str:
    """What each train step logs: in files of others without a `reward`, as of an SFT or DPO run, `loss`."""
    metrics = evidence.metrics
    other = evidence.foreign and not metrics.series("reward") and metrics.series("loss")
    return "loss" if other else "reward"


def _after(evidence: Evidence, step: int, metric: str) -> str:
    """What the values after the step lack; "" where they go on at once, are finite and reach the end."""
    rows = [row for row in evidence.metrics.series(metric) if row.step is not None]
    steps = sorted({row.step for row in rows if row.step is not None})
    after = [one for one in steps if one > step]
    gap = min((later - earlier for earlier, later in pairwise(steps)), default=1)
    if not after or after[0] - step > gap:
        return f"train steps right after step {step}, from which a process was to go on"
    if after[-1] < evidence.plan.expect.steps:
        return f"train steps up to {evidence.plan.expect.steps} after the resume at step {step}"
    bad = next((row for row in rows if row.step in after and not math.isfinite(row.value)), None)
    return f"a finite `{metric}` of step {bad.step} after the resume" if bad is not None else ""


def _blocked(lack: str, *items: EvidenceItem) -> Deliverable:
    return Deliverable(RESUME, Status.BLOCKED, items, f"not shown: {lack}")
