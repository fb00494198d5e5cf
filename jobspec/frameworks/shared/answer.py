"""The answer to one question about a run: shown, shown to be otherwise, or not shown. Plain data."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from jobspec.verdict import Deliverable, EvidenceItem, Status

FROM_WORST = (Status.FAIL, Status.BLOCKED, Status.SKIPPED)


@dataclass(frozen=True)
class Answer:
    """A status with its words and evidence: a part of a deliverable, as one variant's."""

    status: Status
    reason: str = ""
    items: tuple[EvidenceItem, ...] = ()


def passed(reason: str = "", items: Sequence[EvidenceItem] = ()) -> Answer:
    return Answer(Status.PASS, reason, tuple(items))


def failed(reason: str, items: Sequence[EvidenceItem] = ()) -> Answer:
    """A file shows that it was otherwise."""
    return Answer(Status.FAIL, reason, tuple(items))


def blocked(reason: str, items: Sequence[EvidenceItem] = ()) -> Answer:
    """No file shows it either way."""
    return Answer(Status.BLOCKED, reason, tuple(items))


def worst(answers: Sequence[Answer]) -> Answer | None:
    """The first answer of the worst status; None when none is worse than `Pass`."""
    ordered = (answer for status in FROM_WORST for answer in answers if answer.status is status)
    return next(ordered, None)


def combine(name: str, answers: Sequence[Answer], proved: str) -> Deliverable:
    """The worst answer; `Pass` only when there are any and each is, with the evidence of all.

    `proved` is the reason of a pass whose answers have none.
    """
    if not answers:
        return Deliverable(name, Status.SKIPPED, reason="no variant ran")
    bad = worst(answers)
    if bad is not None:
        return Deliverable(name, bad.status, bad.items, bad.reason)
    items = tuple(dict.fromkeys(item for answer in answers for item in answer.items))
    reasons = "; ".join(answer.reason for answer in answers if answer.reason)
    return Deliverable(name, Status.PASS, items, reasons or proved)
