"""A process that was told to go on from a checkpoint and began anew: what its first record says.

TRL's PPO and RLOO have no resume of their own, and a script may never hand the option to `train()`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from jobspec.frameworks.shared.metric_deliverables import RESUME
from jobspec.log_search import Hints, find_lines
from jobspec.log_text import clean
from jobspec.metrics.readers import read_json
from jobspec.verdict import Deliverable, EvidenceItem, Status

if TYPE_CHECKING:
    from jobspec.evidence.evidence import Evidence
    from jobspec.metrics import Row

OPTION = "resume_from_checkpoint"
GIVEN = re.compile(
    rf"{OPTION}['\"]?(?:=|: ?| )['\"]?"
    r"(?:([Tt]rue)\b|([^\s'\",)}]*checkpoint-(\d{1,15}))(?=[\s'\",)}/]|$))"
)
AXES = ("episode", "epoch", "num_tokens")  # what grows through a training, and is saved with a checkpoint
RATES = ("lr", "learning_rate")
Record = Mapping[str, "Row"]


def began_anew(evidence: Evidence) -> Deliverable | None:
    """`Fail` for a log that names what to go on from, and whose first record is of an earlier time."""
    earlier: list[str] = []
    for log in evidence.last.logs if evidence.last is not None else ():
        item, path, step = given(evidence, log.path)
        if item is not None and step:
            first = _first(evidence, log.path, item.line)
            saved = _saved(evidence, step, but=log.path)
            axes = [name for name in AXES if name in first and name in saved]
            before = all(first[name].value < saved[name].value for name in axes)
            if axes and before and (path != "True" or _reached(evidence, earlier, saved[axes[0]])):
                return _failed(item, path, step, first, saved)
        earlier.append(log.path)
    return None


def _failed(item: EvidenceItem, path: str, step: int, first: Record, saved: Record) -> Deliverable:
    told = [name for name in (*AXES, *RATES) if name in first and name in saved]
    now, then = (", ".join(f"{name} {of[name].value:.6g}" for name in told) for of in (first, saved))
    reason = f"a process was given `{OPTION}` = `{path}`, and began before it:"
    reason += f" its first record has {now}; that of step {step} has {then}"
    row = first[told[0]]
    return Deliverable(RESUME, Status.FAIL, (item, EvidenceItem(row.source, row.line, now)), reason)


def given(evidence: Evidence, name: str) -> tuple[EvidenceItem | None, str, int]:
    """The first line of a log that names what to go on from; its path and step, of `True` the first saved."""
    for hit in find_lines(evidence.root / name, Hints((OPTION,))):
        text = clean(hit.text).strip()
        if found := GIVEN.search(text):
            step = int(found[3]) if found[3] else min((one.step for one in evidence.checkpoints), default=0)
            return EvidenceItem(name, hit.number, text[:300]), found[2] or "True", step
    return None, "", 0


def rows_of(evidence: Evidence, source: str) -> list[Row]:
    table = evidence.metrics
    return [row for row in (*table.rows, *table.aside) if row.source == source]


def _first(evidence: Evidence, source: str, below: int) -> Record:
    """The first record of a train step below a line of a log."""
    rows = [row for row in rows_of(evidence, source) if (row.line or 0) > below]
    tests = {row.line for row in rows if row.metric.startswith("eval")}
    line = min((row.line or 0 for row in rows if row.metric in AXES and row.line not in tests), default=0)
    return {row.metric: row for row in rows if row.line == line}


def _reached(evidence: Evidence, logs: Iterable[str], saved: Row) -> bool:
    """Whether an earlier log shows a process that came as far as the checkpoint."""
    rows = (row for name in logs for row in rows_of(evidence, name) if row.metric == saved.metric)
    return any(row.value >= saved.value for row in rows)


def _saved(evidence: Evidence, step: int, but: str) -> Record:
    """The values at the step of the checkpoint: of its own state, else of another process's log."""
    own = next((one for one in evidence.checkpoints if one.step == step), None)
    if own is not None:
        state = {
            row.metric: row for row in read_json(Path(own.path, "trainer_state.json")) if row.step == step
        }
        if any(name in AXES for name in state):
            return state
    table = evidence.metrics
    rows = (row for row in (*table.rows, *table.aside) if row.step == step and row.source != but)
    return {row.metric: row for row in rows}
