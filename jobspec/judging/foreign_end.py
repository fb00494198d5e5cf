"""How a run that jobspec did not launch ended: an exit code that a log states, or the failure it shows."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace

from jobspec.evidence.evidence import Attempt, Evidence
from jobspec.evidence.log_facts import Facts
from jobspec.triage.signatures import NOTE
from jobspec.verdict import Deliverable, EvidenceItem, Status

RUN = "Run"
MEASURED = ("numerics", "learning")  # kinds of failure that the metrics show as well
# A launcher that got a signal itself: what it ends are its own processes. Source: torch `elastic`.
SIGNALLED = re.compile(r"SignalException: Process \d+ got signal: (?:1|2|15)\b")
TERMINATED = "effect.terminated"
LEFT = re.compile(r"^SystemExit\b")  # the program's own doing
MAX_CODES = 4  # logs named
ENDED_FROM_OUTSIDE = (130, 143)  # SIGINT, SIGTERM: somebody, or a time limit


def judge_end(facts: Facts, attempt: Attempt, others: Sequence[Deliverable], short: bool) -> Deliverable:
    """How the run ended, where a log states it; else the first failure line of a run without other proof, or
    of one that may have been `short`."""
    code, item = _exit_code(facts)
    if item is not None and code and (facts.ended or facts.stated or not _proved(others)):
        status = Status.BLOCKED if code in ENDED_FROM_OUTSIDE else Status.FAIL
        what = "the run ended with exit code" if facts.ended else "a task of the job ended with exit code"
        if facts.stated and not facts.ended:  # a script says it of any of its commands
            what = "the last exit code that a log states is"
        return Deliverable(RUN, status, (item,), f"{what} {code}")
    if item is not None and (facts.ended or facts.stated):
        # The last command's code: a batch shell that got SIGTERM alone states 0 as well.
        if codes := _other_codes(facts):
            reason = f"the logs state several exit codes, and jobspec does not know the last one: {codes}"
            return Deliverable(RUN, Status.SKIPPED, (item,), reason, required=False)
        reason = "exit code 0, which alone proves nothing"
        return Deliverable(RUN, Status.PASS, (item,), reason, required=False)
    lines = [match for match in attempt.matches if match.verdict != NOTE and not match.survived]
    if any(item.status is Status.FAIL for item in others):  # they name the metric and its step
        lines = [match for match in lines if match.kind not in MEASURED]
    serious = next((match for match in lines if not match.generic or (short and not match.wrapper)), None)
    if serious is None or (_proved(others) and not short):
        reason = "its exit code was not read from the files"
        return Deliverable(RUN, Status.SKIPPED, reason=reason, required=False)
    item = EvidenceItem(serious.file, serious.line, serious.text)
    status = Status.BLOCKED if serious.verdict == "Blocked" else Status.FAIL
    return Deliverable(RUN, status, (item,), serious.title or serious.kind)


def as_stopped(attempt: Attempt) -> Attempt:
    """The attempt of a run that ended early: where its logs show a request to end and no failure, that.

    Such a request comes from outside of the programs whose logs these are.
    """
    failures = [match for match in attempt.matches if match.verdict != NOTE and not match.survived]
    asked = [
        match
        for match in failures
        if (match.signature == TERMINATED and not LEFT.search(match.text)) or SIGNALLED.search(match.text)
    ]
    if not asked or any(match not in asked and not match.wrapper for match in failures):
        return attempt
    title = "a signal asked the run to end, and the files show no known failure beside it"
    fix = "ask who or what ended it: a person, the scheduler, a launcher on another node"
    first = replace(
        asked[0], kind="cancelled", verdict="Blocked", wrapper=False, title=title, why=title, fix=fix
    )
    others = (match for match in attempt.matches if match not in asked)
    return replace(attempt, matches=(first, *others))


def _exit_code(facts: Facts) -> tuple[int, EvidenceItem | None]:
    """The exit code of the last job by its stated end time; else what a script states, or a failed task's."""
    if facts.ended:
        _, code, item = max(facts.ended, key=lambda end: end[0])
        return code, item
    task = next(((code, item) for code, item in facts.tasks if code), None)
    # Of several logs one may be an earlier attempt's: a code of 0 among them leaves the others open.
    stated = min(facts.stated.values(), key=lambda end: end[0], default=None)
    return stated or task or (0, None)


def _other_codes(facts: Facts) -> str:
    """The codes that scripts state in several logs, where they differ and no end time tells the last one."""
    codes = {code for code, _ in facts.stated.values()}
    if facts.ended or len(codes) < 2:
        return ""
    return ", ".join(f"{code} in `{name}`" for name, (code, _) in list(facts.stated.items())[:MAX_CODES])


def _proved(others: Sequence[Deliverable]) -> bool:
    statuses = [item.status for item in others if item.required and item.status is not Status.NOT_REQUESTED]
    return bool(statuses) and all(status is Status.PASS for status in statuses)


def is_short(evidence: Evidence, steps: int, framework_items: Sequence[Deliverable]) -> bool:
    """Whether planned steps are missing, or nothing says how many there were to be."""
    planned, last = _steps(evidence, steps)
    return last < planned if planned else not any(item.required for item in framework_items)


def missing_steps(evidence: Evidence, steps: int) -> Deliverable | None:
    """What is not shown of a run whose announced steps are not all logged."""
    planned, last = _steps(evidence, steps)
    if last >= planned:
        return None
    reason = f"not shown: step {last} of {planned} is the last that was read, and no exit code"
    return Deliverable(RUN, Status.BLOCKED, reason=reason)


def with_last_step(run: Deliverable, evidence: Evidence, steps: int) -> Deliverable:
    """The end of a run that stopped early, with how far it had come where its metrics name their steps."""
    planned, last = _steps(evidence, steps)
    ended = run.status in (Status.BLOCKED, Status.FAIL)
    if not ended or evidence.metrics.inferred or not 0 < last < planned:
        return run
    return replace(run, reason=f"{run.reason}; step {last} of {planned} is the last that was read")


def is_complete(evidence: Evidence, steps: int, run: Deliverable) -> bool:
    """Whether every requested or announced step is logged, or the run's own exit code is 0."""
    planned, last = _steps(evidence, steps)
    return 0 < planned <= last or run.status is Status.PASS


def _steps(evidence: Evidence, steps: int) -> tuple[int, int]:
    """The steps that were requested or announced, 0 where nothing says how many, and those done."""
    return steps or evidence.metrics.planned, evidence.metrics.steps_done()
