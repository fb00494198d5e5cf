"""A process that refused the checkpoint which it was to go on from: what a level with a resume tests."""

from __future__ import annotations

import re
from dataclasses import replace

from jobspec.evidence.evidence import Attempt, Evidence
from jobspec.triage import Match
from jobspec.triage.signatures import FAIL, NOTE

KINDS = frozenset({"checkpoint", "weights"})
# It was found and read, and does not fit. A file that is missing or cut, a full disk, a permission and
# another number of ranks are about the surroundings.
UNFIT = re.compile(
    r"parameter group|optimizer's group|size mismatch for |(?:Missing|Unexpected) key.*(?:checkpoint|state)"
)


def refused(evidence: Evidence) -> Match | None:
    """The line that says it, of a run that has saved a checkpoint and was to resume; None without one."""
    if not evidence.plan.expect.resume or not evidence.checkpoints or evidence.last is None:
        return None
    failed = (one for one in evidence.last.own_matches if one.verdict != NOTE and not one.survived)
    return next((one for one in failed if one.kind in KINDS and UNFIT.search(one.text)), None)


def as_tested(evidence: Evidence, attempt: Attempt) -> Attempt:
    """The attempt; where its process refused the checkpoint, that is a failure of what is tested."""
    unfit = refused(evidence)
    if unfit is None:
        return attempt
    matches = (replace(one, verdict=FAIL) if one == unfit else one for one in attempt.matches)
    return replace(attempt, matches=tuple(matches))
