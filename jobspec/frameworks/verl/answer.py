"""The result of one question about a run: shown, shown to be otherwise, or not shown. Plain data."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from jobspec.verdict import EvidenceItem, Status


@dataclass(frozen=True)
class Judged:
    """A status with its words and evidence."""

    status: Status
    text: str
    items: tuple[EvidenceItem, ...] = ()


def passed(text: str, items: Sequence[EvidenceItem] = ()) -> Judged:
    return Judged(Status.PASS, text, tuple(items))


def failed(text: str, items: Sequence[EvidenceItem] = ()) -> Judged:
    """A file shows that it was otherwise."""
    return Judged(Status.FAIL, text, tuple(items))


def blocked(text: str, items: Sequence[EvidenceItem] = ()) -> Judged:
    """No file shows it either way."""
    return Judged(Status.BLOCKED, text, tuple(items))
