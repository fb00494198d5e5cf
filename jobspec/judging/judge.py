"""From evidence to a verdict: the rules of design section 8. Pure; reads no file and asks no scheduler.

`docs/verdict.md` states the rules for users. A level passes only when evidence proves every criterion of the
level. Missing evidence never counts as proof.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

from jobspec import frameworks
from jobspec.evidence.deliverables import (
    all_pass,
    artifacts_deliverable,
    metrics_deliverable,
    other_checkouts,
    phase_deliverables,
    run_deliverable,
)
from jobspec.evidence.evidence import Attempt, Evidence
from jobspec.evidence.lost_answers import UNCHECKED, ZERO, Lost
from jobspec.evidence.read import CLOSED, RECORDS
from jobspec.evidence.repo_tests import other_checks
from jobspec.evidence.services import service_deliverables
from jobspec.finding import Finding, JobspecError, warning
from jobspec.judging.first_cause import ONLY_HOW_IT_ENDED, SCHEDULER_ENDS, cause_from, first_cause
from jobspec.judging.named_nodes import node_findings
from jobspec.judging.not_proved import limitations, with_limits
from jobspec.metrics.names import FIGURES, find_metric, own_names
from jobspec.metrics.training_health import troubles
from jobspec.triage import Match
from jobspec.triage.conclusion import FOLLOWED
from jobspec.triage.signatures import NOTE, SECRET
from jobspec.verdict import (
    FIGURE_SHARE,
    NOT_APPLICABLE,
    RESIDUAL_NOISE,
    SUSPICIOUS,
    AttemptVerdict,
    Cause,
    Deliverable,
    EvidenceItem,
    Figure,
    Result,
    Status,
    Verdict,
    is_void,
)

if TYPE_CHECKING:
    from jobspec.frameworks.base import Framework

EXCEPTION = "effect.exception"  # a traceback of no known cause: the one effect that is worth a look
CHAIN_LINES = 40  # of the tracebacks between an exception and the one raised while it was handled
MAX_NOTES = 5  # reported lines that are no failures
MAX_SURVIVED = 3  # reported lines that look like failures and were none; a fourth says nothing new


def judge(evidence: Evidence, framework: Framework | None = None) -> Verdict:
    """The verdict that the evidence supports.

    Without `framework` the plan names it. The last attempt decides; earlier attempts are recorded. Never
    raises for missing evidence.
    """
    problems: tuple[Finding, ...] = ()
    if framework is None and evidence.plan_read:
        framework, problems = _find_framework(evidence.plan.framework)
    if evidence.plan.expect.number is None:
        evidence = _with_level_of_today(evidence, framework)
    return for_guide(_judge(evidence, framework, problems), evidence, framework)


def _with_level_of_today(evidence: Evidence, framework: Framework | None) -> Evidence:
    """The evidence; the installed adapter states the level where the plan of an older jobspec does not."""
    expect = evidence.plan.expect
    levels = framework.levels if framework is not None else ()
    level = next((level for level in levels if expect.level in (level.name, str(level.number))), None)
    if level is None:
        return evidence
    return replace(evidence, plan=replace(evidence.plan, expect=level.stated_in(expect)))


def for_guide(verdict: Verdict, evidence: Evidence, framework: Framework | None) -> Verdict:
    """The verdict with the number and claim of its level and the guide, for the guides' short form."""
    expect = evidence.plan.expect
    guide = tuple(getattr(framework, "guide", ()))
    return replace(verdict, number=expect.number, proves=expect.proves, guide=guide)


def _judge(evidence: Evidence, framework: Framework | None, problems: tuple[Finding, ...]) -> Verdict:
    attempt = evidence.last
    if not evidence.plan_read or attempt is None or not (attempt.events or attempt.results):
        return _nothing_ran(evidence)
    deliverables, cause = _judge_attempt(evidence, attempt, framework)
    void = any(other_checkouts(evidence.plan, attempt)) or is_void(deliverables)
    result = Result.BLOCKED if void else decide(deliverables, cause)
    return Verdict(
        result=result,
        level=evidence.plan.expect.level,
        deliverables=deliverables,
        first_cause=None if result is Result.PASS else cause or cause_of(deliverables),
        limitations=with_limits(limitations(evidence), deliverables),
        findings=(*problems, *line_findings(evidence, attempt, result, cause), *node_findings(evidence)),
        figures=figures(evidence),
        attempts=tuple(_attempt_verdict(item) for item in evidence.attempts),
        reason=_reason(deliverables, cause, result),
    )


def _judge_attempt(
    evidence: Evidence, attempt: Attempt, framework: Framework | None
) -> tuple[tuple[Deliverable, ...], Cause | None]:
    phases = (*phase_deliverables(evidence, attempt), *service_deliverables(evidence, attempt))
    run = run_deliverable(evidence, attempt)
    finished = run.status is Status.PASS and all_pass(item for item in phases if item.required)
    cause = None if finished else first_cause(evidence, attempt, (*phases, run))
    if cause is not None and run.status is not Status.PASS:
        run = _explain(run, cause, attempt.started("driver"))
    framework_items = _own_deliverables(evidence, framework)
    framework_items = (*other_checks(evidence, framework_items), *framework_items)
    if not finished:
        framework_items = tuple(held_back(item) for item in framework_items)
    framework_items = (*framework_items, *_not_applicable(evidence, framework))
    metrics = metrics_deliverable(evidence, finished)
    artifacts = artifacts_deliverable(evidence, attempt, finished)
    return (*phases, run, *framework_items, metrics, artifacts), cause


def _own_deliverables(evidence: Evidence, framework: Framework | None) -> tuple[Deliverable, ...]:
    """The framework's deliverables; one `Blocked` deliverable where its adapter is not installed."""
    if framework is not None:
        return tuple(framework.judge(evidence))
    reason = f"no adapter for `{evidence.plan.framework}` is installed, so the level's criteria are not known"
    return (Deliverable("Framework", Status.BLOCKED, reason=reason),)


def _not_applicable(evidence: Evidence, framework: Framework | None) -> Iterator[Deliverable]:
    """The spec's word about variants that the framework blocks: told apart from what ran."""
    guide: tuple[str, ...] = getattr(framework, "guide", ())
    blocker = guide[1].rpartition(" in ")[2] if len(guide) > 1 else evidence.plan.framework
    for entry in evidence.plan.expect.not_applicable:
        yield Deliverable(
            f"Variant {entry.variant}",
            Status.NOT_REQUESTED,
            (EvidenceItem(entry.evidence, entry.line, entry.text),),
            f"{NOT_APPLICABLE} {blocker}: {entry.why}",
            required=False,
            settled=True,
            limits=(f"variant `{entry.variant}` did not run: nothing is proved about it",),
        )


def _explain(run: Deliverable, cause: Cause, started: bool) -> Deliverable:
    """The run's status by its cause: a cause outside what is tested makes it `Blocked`."""
    if not started:
        return replace(run, status=Status.SKIPPED, reason="an earlier phase stopped the run")
    item = EvidenceItem(cause.file, cause.line, cause.text)
    status = Status.BLOCKED if cause.verdict is Result.BLOCKED else Status.FAIL
    return replace(
        run, status=status, evidence=(item, *run.evidence), reason=f"{run.reason}; first cause: {cause.kind}"
    )


def held_back(item: Deliverable, reason: str = "the run did not end well") -> Deliverable:
    """The deliverable, `Skipped` unless settled: a run that did not end well passes and fails nothing."""
    if item.settled or item.status in (Status.SKIPPED, Status.NOT_REQUESTED, Status.BLOCKED):
        return item
    if item.status is Status.PASS:
        otherwise = f"would be {item.status}: {item.reason}".rstrip(": ")
        reason = f"{reason} ({otherwise})"
    elif item.reason:
        reason = f"{reason}; {item.reason}"
    return replace(item, status=Status.SKIPPED, reason=reason)


def decide(deliverables: tuple[Deliverable, ...], cause: Cause | None) -> Result:
    """`Pass` when every required deliverable passed; else the cause's verdict, else the worst status."""
    required = [item for item in deliverables if item.required]
    if all_pass(required):
        return Result.PASS
    if cause is not None:
        return cause.verdict
    if any(item.status is Status.FAIL for item in required):
        return Result.FAIL
    # Something required was skipped though the run ended well: not proved, and nothing outside is to blame.
    return Result.BLOCKED if any(item.status is Status.BLOCKED for item in required) else Result.FAIL


def cause_of(deliverables: tuple[Deliverable, ...]) -> Cause | None:
    """The first required deliverable with `Fail`, else the first with `Blocked`, as a cause."""
    for status in (Status.FAIL, Status.BLOCKED):
        deciding = next((item for item in deliverables if item.required and item.status is status), None)
        if deciding is not None:
            return cause_from(deciding)
    return None


def _reason(deliverables: tuple[Deliverable, ...], cause: Cause | None, result: Result) -> str:
    if result is Result.PASS:
        return "every deliverable of the level is proved"
    if cause is not None:
        # A finding's own words say what is wrong; a log line and a state need their explanation.
        explained = cause.signature or cause.kind in SCHEDULER_ENDS
        where = f" on `{cause.node}`" if cause.kind in ONLY_HOW_IT_ENDED and cause.node else ""
        return cause.why if explained and cause.why else f"{cause.text}{where}"
    order = (Status.FAIL, Status.BLOCKED, Status.SKIPPED)
    bad = sorted(
        (d for d in deliverables if d.required and d.status in order), key=lambda d: order.index(d.status)
    )
    return f"{bad[0].name}: {bad[0].reason}" if bad else ""


# The job got its nodes, but no agent wrote an event: container, shared storage or node are to blame.
_STARTED_ENDS = frozenset({"FAILED", "NODE_FAIL", "BOOT_FAIL", "OUT_OF_MEMORY", "TIMEOUT"})


def _nothing_ran(evidence: Evidence) -> Verdict:
    state = evidence.scheduler.state.split(" ")[0]
    closed = any(item.rule in RECORDS and item.why == CLOSED for item in evidence.problems)
    started = evidence.plan_read and (closed or state in _STARTED_ENDS)
    cause = first_cause(evidence, evidence.last, ()) if evidence.plan_read else None
    if not evidence.plan_read:
        reason = "`plan.json` cannot be read: nothing says what was to be proved"
    elif closed:
        reason = f"what the attempts left cannot be read: {CLOSED.lower()}"
    elif started:
        known = cause if cause and cause.signature and cause.verdict is Result.BLOCKED else None
        why = known.why if known else "the step or its container did not start"
        reason = f"the job ended as {state} before its first phase: {why}"
    elif state in SCHEDULER_ENDS:
        reason = f"the job ended as {state} before anything ran"
    elif state:
        reason = f"the job is {state}: {evidence.scheduler.reason or 'nothing has run yet'}"
    else:
        reason = _no_evidence(evidence)
    return Verdict(
        Result.BLOCKED if started else Result.NOTHING_RAN,
        evidence.plan.expect.level,
        first_cause=cause,
        findings=evidence.problems,
        reason=reason,
    )


def _no_evidence(evidence: Evidence) -> str:
    """Why nothing is judged. The last attempt decides, even an empty one: no earlier one ended the run."""
    left = [attempt.number for attempt in evidence.attempts if attempt.events or attempt.results]
    if not left or evidence.last is None:
        return "no attempt left any evidence"
    return f"attempt {evidence.last.number} left no evidence; the last attempt with evidence is {left[-1]}"


def line_findings(
    evidence: Evidence, attempt: Attempt, result: Result, cause: Cause | None = None
) -> tuple[Finding, ...]:
    """Findings of the reader and the runtime, suspicious lines, troubles of the metrics, secrets in logs."""
    findings = [*evidence.problems, *attempt.findings, *attempt.metrics.findings]
    lines = attempt.own_matches
    survived = [
        match for match in lines if match.survived and (match.trained_on or not _leads_to(match, cause))
    ][:MAX_SURVIVED]
    findings.extend(
        _suspicious(
            match,
            ", and train steps followed, by the order or the times of the lines",
            "training went on after it, or began anew",
        )
        if match.trained_on
        else _suspicious(
            match,
            "",
            "another attempt followed it"
            if match.why.endswith(FOLLOWED)
            else "jobspec does not take it for the cause of the verdict",
        )
        for match in survived
    )
    failures = [
        match for match in lines if not match.survived and not match.wrapper and match.verdict != NOTE
    ]
    # A foreign run has no exit code of ours that says how it ended: there each such line counts.
    odd = next(
        (one for one in failures if evidence.foreign or not one.generic or one.signature == EXCEPTION), None
    )
    if result is Result.PASS and odd is not None:
        findings.append(_suspicious(odd, "", "what is asked for is proved all the same"))
    notes = [
        match
        for match in lines
        if match.verdict == NOTE
        and match.kind != SECRET
        and not match.survived
        and not _leads_to(match, cause)
    ]
    findings.extend(_residual(match, result) for match in notes[:MAX_NOTES])
    for trouble in troubles(evidence.metrics, evidence.plan.expect.metric_keys):
        finding = warning(f"metrics.{trouble.kind}", trouble.what, trouble.why, trouble.fix)
        findings.append(finding.at(trouble.row.source, trouble.row.line))
    findings.extend(_lost(lost) for lost in evidence.lost)
    for match in attempt.matches:
        if match.kind == SECRET:
            findings.append(warning("verdict.secret", match.title, fix=match.fix).at(match.file, match.line))
    return tuple(dict.fromkeys(findings))


def _lost(lost: Lost) -> Finding:
    """Answers that failed while the run went on, with their number."""
    why = "a 0 for a failure looks like a wrong answer, and fewer failures look like learning"
    if lost.fate != ZERO:
        why = "the reward is that of the others alone"
    fix = "find out why these failed before you believe the reward"
    if lost.fate == UNCHECKED:
        why = "such an answer has no reward, or a fixed one, whatever it says"
        fix = (
            "give the solutions in the form that the parser of the reward takes (mostly LaTeX: `$72$`,"
            " `\\boxed{72}`), or let it take theirs, and try the reward on some rows of the data"
        )
    return warning("metrics.lost-answers", f"{lost}: {lost.text}", why, fix).at(lost.file, lost.line)


def _leads_to(match: Match, cause: Cause | None) -> bool:
    """Whether a note stands so near above the cause that it may be a part of it, as of its traceback."""
    return cause is not None and match.file == cause.file and 0 <= cause.line - match.line <= CHAIN_LINES


def _residual(match: Match, result: Result) -> Finding:
    """A line that is worth a word and by itself stops nothing, such as the noise of a shutdown."""
    noise = "residual log noise" if result is Result.PASS else "a line of a kind that mostly ends no run"
    what = f"{noise}: {match.text[:200]}"
    return warning(RESIDUAL_NOISE, what, match.title, match.fix).at(match.file, match.line)


def _suspicious(match: Match, went_on: str, so_what: str) -> Finding:
    what = f"a line looks like a failure{went_on}: {match.text[:200]}"
    finding = warning(SUSPICIOUS, what, match.title, f"look at the line once: {so_what}")
    return finding.at(match.file, match.line)


def figures(evidence: Evidence) -> tuple[Figure, ...]:
    """First and last value of the metrics that people ask for, each a mean over a tenth of the steps."""
    return tuple(_figures(evidence))


def _figures(evidence: Evidence) -> Iterator[Figure]:
    table = evidence.metrics
    for name, key in _figure_keys(evidence).items():
        values = table.values(key, finite=True)
        if values and not table.is_pieced(key):
            width = max(1, len(values) // FIGURE_SHARE)
            first, last = math.fsum(values[:width]) / width, math.fsum(values[-width:]) / width
            yield Figure(name, table.logged_name(key), first, last, steps=len(values))


def _figure_keys(evidence: Evidence) -> dict[str, str]:
    """Metric by name of each figure: the learnt metric, then `FIGURES`, then the framework's other names."""
    expect, table = evidence.plan.expect, evidence.metrics
    logged = set(table.metrics)
    plan_names = own_names(expect.metric_keys)
    learnt = expect.learning.metric if expect.learning is not None else ""
    keys = (
        {next((name for name, key in plan_names.items() if key == learnt), learnt): learnt} if learnt else {}
    )
    for name in FIGURES:
        if key := find_metric(name, expect.metric_keys, logged):
            keys.setdefault(name, key)
    keys.update({name: key for name, key in plan_names.items() if name not in keys})
    found = {name: key for name, key in keys.items() if key in logged}
    once = {table.logged_name(key): name for name, key in reversed(found.items())}
    return {name: key for name, key in found.items() if once[table.logged_name(key)] == name}


def _attempt_verdict(attempt: Attempt) -> AttemptVerdict:
    results, table = attempt.results, attempt.metrics
    first, last = table.first_step(), table.last_step()
    return AttemptVerdict(
        number=attempt.number,
        outcome=results.outcome if results else "unknown",
        exit_code=results.exit_code if results else None,
        reason=_attempt_reason(attempt),
        start=min((event.time for event in attempt.events), default=0.0),
        end=max((event.time for event in attempt.events), default=0.0),
        steps=None if first is None or last is None else (first, last),
    )


def _attempt_reason(attempt: Attempt) -> str:
    if attempt.results is None:
        return "no `results.json`: the attempt was cut off or still runs"
    errors = [finding for finding in attempt.findings if finding.is_error]
    return errors[0].what if errors else ""


def _find_framework(name: str) -> tuple[Framework | None, tuple[Finding, ...]]:
    try:
        return frameworks.get(name), ()
    except JobspecError as unknown:
        return None, tuple(unknown.findings)
