"""Logs that were unpacked to be read get their own names back."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from jobspec.evidence.evidence import Evidence
from jobspec.verdict import Verdict


def named(evidence: Evidence, names: Mapping[str, str]) -> Evidence:
    """The evidence with the own names of its logs."""
    attempt = evidence.attempts[0]
    logs = tuple(replace(log, path=names.get(log.path, log.path)) for log in attempt.logs)
    return replace(evidence, attempts=(replace(attempt, logs=logs),))


def renamed(verdict: Verdict, names: Mapping[str, str]) -> Verdict:
    """The verdict with the own names of the logs that it cites."""
    if not names:
        return verdict
    cause = verdict.first_cause
    return replace(
        verdict,
        deliverables=tuple(
            replace(
                item,
                evidence=tuple(replace(part, file=names.get(part.file, part.file)) for part in item.evidence),
            )
            for item in verdict.deliverables
        ),
        first_cause=None if cause is None else replace(cause, file=names.get(cause.file, cause.file)),
        findings=tuple(
            replace(finding, file=names.get(finding.file, finding.file)) for finding in verdict.findings
        ),
    )
