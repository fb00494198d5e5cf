"""Verdicts about one variant, and how those of several become a deliverable. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from jobspec.frameworks.nemo_rl.variant_run import VariantRun
from jobspec.verdict import Deliverable, EvidenceItem, Status

IMPORT, RUN = "Local Bridge import in NeMo-RL", "NeMo-RL Megatron policy run"
VARIANTS, CAPTURE = "Requested variants", "Metrics/log capture"
HF_IMPORT = "HF import"
ORDER = (Status.FAIL, Status.BLOCKED, Status.SKIPPED)


@dataclass(frozen=True)
class Part:
    """What one variant contributes to a deliverable."""

    status: Status
    reason: str = ""
    items: tuple[EvidenceItem, ...] = ()


def passed(run: VariantRun, reason: str = "", items: Sequence[EvidenceItem] = ()) -> Part:
    return Part(Status.PASS, f"`{run.name}`: {reason}" if reason else "", tuple(items))


def wrong(run: VariantRun, reason: str, items: Sequence[EvidenceItem] = ()) -> Part:
    """Something that the files show to be wrong."""
    return Part(Status.FAIL, f"`{run.name}`: {reason}", tuple(items))


def unseen(run: VariantRun, reason: str, items: Sequence[EvidenceItem] = ()) -> Part:
    """Something that no file shows: a fault in a run of ours, whose files are whole, else not proved.

    Without a line to show, the evidence is the log that was looked through.
    """
    whole = not run.foreign and any(log.bytes for log in run.logs)
    status = Status.FAIL if whole else Status.BLOCKED
    looked_at = tuple(items) or tuple(EvidenceItem(log.path) for log in run.logs[:1])
    return Part(status, f"`{run.name}`: {'' if whole else 'not shown: '}{reason}", looked_at)


def combine(name: str, parts: Sequence[Part], proved: str) -> Deliverable:
    """The worst of the parts; `Pass` only when there are any and each has evidence of its own."""
    if not parts:
        return Deliverable(name, Status.SKIPPED, reason="no variant ran")
    for status in ORDER:
        bad = next((part for part in parts if part.status is status), None)
        if bad is not None:
            return Deliverable(name, status, bad.items, bad.reason)
    items = tuple(dict.fromkeys(item for part in parts for item in part.items))
    told = "; ".join(part.reason for part in parts if part.reason)
    return Deliverable(name, Status.PASS, items, told or proved)
