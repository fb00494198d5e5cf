"""The answer to one question about a run: proved, disproved, or not shown. Plain data."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from jobspec.verdict import Deliverable, EvidenceItem, Status

FROM_WORST = (Status.FAIL, Status.BLOCKED, Status.SKIPPED)


@dataclass(frozen=True)
class Answer:
    """A status with its reason and evidence: one part of a deliverable, for example one variant's."""

    status: Status
    reason: str = ""
    items: tuple[EvidenceItem, ...] = ()
    fix: str = ""


def passed(reason: str = "", items: Sequence[EvidenceItem] = ()) -> Answer:
    return Answer(Status.PASS, reason, tuple(items))


def failed(reason: str, items: Sequence[EvidenceItem] = ()) -> Answer:
    """A file disproves it."""
    return Answer(Status.FAIL, reason, tuple(items))


def blocked(reason: str, items: Sequence[EvidenceItem] = ()) -> Answer:
    """No file proves or disproves it."""
    return Answer(Status.BLOCKED, reason, tuple(items))


def unseen(foreign: bool, reason: str, items: Sequence[EvidenceItem] = ()) -> Answer:
    """No file shows it: a failure of our own run, whose files are whole; of others nothing is known."""
    return blocked(f"not shown: {reason}", items) if foreign else failed(reason, items)


def not_tested(foreign: bool, reason: str, items: Sequence[EvidenceItem] = ()) -> Answer:
    """Something else ran: our own run was to use this, so it failed; a run of others tells nothing of it."""
    return (
        blocked(f"{reason}: the run is no evidence for this level", items)
        if foreign
        else failed(reason, items)
    )


def worst(answers: Sequence[Answer]) -> Answer | None:
    """The first answer of the worst status; None when every answer is a `Pass`."""
    ordered = (answer for status in FROM_WORST for answer in answers if answer.status is status)
    return next(ordered, None)


def combine(name: str, answers: Sequence[Answer], proved: str) -> Deliverable:
    """The deliverable of the worst answer; a `Pass` needs one answer or more and carries all evidence.

    `proved` is the reason of a pass whose answers give no reason.
    """
    if not answers:
        return Deliverable(name, Status.SKIPPED, reason="no variant ran")
    bad = worst(answers)
    if bad is not None:
        return Deliverable(name, bad.status, bad.items, bad.reason, fix=bad.fix)
    items = tuple(dict.fromkeys(item for answer in answers for item in answer.items))
    reasons = "; ".join(answer.reason for answer in answers if answer.reason)
    return Deliverable(name, Status.PASS, items, reasons or proved)
