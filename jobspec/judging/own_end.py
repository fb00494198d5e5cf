"""The criterion of a run of others for which nobody gave one: that it ended well, with all the steps that it
announced.

An exit code alone decides nothing: the logs have to show no failure, and what was logged has to be whole.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from jobspec.evidence.evidence import Attempt, Evidence
from jobspec.evidence.log_facts import CODE_FILE
from jobspec.frameworks.command import trained_by
from jobspec.frameworks.shared.metric_deliverables import TRAINER_END, TRAINING, training_deliverable
from jobspec.judging.foreign_end import is_complete, missing_steps
from jobspec.metrics.finite import first_not_finite
from jobspec.triage import Match
from jobspec.triage.ranking import EXCEPTION
from jobspec.triage.signatures import NOTE
from jobspec.verdict import Deliverable, EvidenceItem, Status

ONLY_ITS_END = (
    "no `--require` and no `--learning` was given: only how the run ended is judged, and its train steps"
)
AFTER_TRAINER = (
    "jobspec read no exit code: that the process ended well after the trainer's last words is not shown"
)
GIVE = "say what was to be reached: `--steps`, `--require` or `--learning`"


def by_its_end(evidence: Evidence, attempt: Attempt, run: Deliverable, steps: int) -> tuple[Deliverable, ...]:
    """`Run` as a criterion, and `Training` where train steps are logged or announced."""
    training = tuple(_training(evidence))
    if run.status is Status.SKIPPED and any(item.status is Status.FAIL for item in training):
        return run, *training
    announced = steps or evidence.metrics.planned
    whole = bool(announced) and all(item.status is Status.PASS for item in training)
    ended = _ended(evidence, attempt, run, whole and is_complete(evidence, steps, run))
    return replace(ended, required=True, fix=ended.fix or GIVE), *training


def _training(evidence: Evidence) -> Iterator[Deliverable]:
    metric, table = trained_by(evidence), evidence.metrics
    bad = first_not_finite(table)
    if metric:
        yield training_deliverable(evidence, metric)
    elif bad is not None:
        reason = f"`{bad.metric}` of step {bad.step} is {bad.value}, not a finite number"
        yield Deliverable(TRAINING, Status.FAIL, (EvidenceItem(bad.source, bad.line),), reason)


def _ended(evidence: Evidence, attempt: Attempt, run: Deliverable, whole: bool) -> Deliverable:
    failure = next((match for match in attempt.matches if _is_failure(match)), None)
    last = evidence.metrics.series(TRAINER_END)
    if run.status is Status.PASS:
        item = run.evidence[0]
        place = f"{item.file}:{item.line}"
        if failure is not None and not whole:
            status = Status.BLOCKED if failure.verdict == "Blocked" else Status.FAIL
            line = EvidenceItem(failure.file, failure.line, failure.text)
            reason = (
                f"the exit code is 0 ({place}), but a log shows a failure: {failure.title or failure.kind}"
            )
            return Deliverable(run.name, status, (line, item), reason)
        if (at := _logged_below(attempt, item)) is not None:
            reason = f"exit code 0 ({place}) is no end of the run: records follow it ({item.file}:{at})"
            return Deliverable(run.name, Status.BLOCKED, (item,), reason)
        if not _beside(evidence, attempt, item):
            reason = f"exit code 0 ({place}) alone, which proves nothing: jobspec read no log and no metric"
            return Deliverable(run.name, Status.BLOCKED, (item,), reason)
        return replace(run, reason=f"exit code 0 ({place})", limits=(ONLY_ITS_END,))
    if lack := missing_steps(evidence, 0):
        return lack
    if last and whole and evidence.metrics.planned and failure is None:
        reason = f"the trainer logged its end (`{TRAINER_END}`); {run.reason}"
        item = EvidenceItem(last[-1].source, last[-1].line)
        return Deliverable(run.name, Status.PASS, (item,), reason, limits=(ONLY_ITS_END, AFTER_TRAINER))
    return replace(run, status=Status.BLOCKED)


def _is_failure(match: Match) -> bool:
    own = not match.generic or match.signature == EXCEPTION
    return own and match.verdict != NOTE and not match.survived


def _logged_below(attempt: Attempt, item: EvidenceItem) -> int | None:
    """The last record of metrics below a line of the same log."""
    lines = [row.line or 0 for row in (*attempt.metrics, *attempt.metrics.aside) if row.source == item.file]
    return max((line for line in lines if line > item.line), default=None)


def _beside(evidence: Evidence, attempt: Attempt, item: EvidenceItem) -> bool:
    """Whether there is more than the exit code's own file, or than Slurm's record."""
    alone = {evidence.scheduler.place.file, item.file if CODE_FILE.search(item.file) else ""}
    return bool(len(evidence.metrics)) or any(log.path not in alone for log in attempt.logs)
