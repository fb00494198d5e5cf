"""The first cause of a run that did not end well: the earliest specific one over all nodes.

Candidates are the runtime's findings, failure signatures in the logs and the scheduler's last word. Without
any of them the end of the driver is the cause. `docs/verdict.md` gives the order.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import replace

from jobspec.evidence.evidence import Attempt, Event, Evidence
from jobspec.evidence.refused_checkpoint import as_tested
from jobspec.evidence.repo_tests import check_cause
from jobspec.finding import Finding
from jobspec.triage import Match
from jobspec.triage.signatures import NOTE
from jobspec.triage.silence import STALL
from jobspec.verdict import AGENT_KILLED, Cause, Deliverable, Result, Status

# The watch's findings about a run that stands still.
STALLS = frozenset({"stall.outside", "driver.stall"})
BEFORE_DRIVER = frozenset({"preflight", "code", "stage", "helpers", "imports", "ray", "checks", "services"})

# Slurm's final states (squeue(1), "JOB STATE CODES", Slurm 22.05 to 24.11), what they say, and the next step.
SCHEDULER_ENDS: dict[str, tuple[Result, str, str]] = {
    "TIMEOUT": (
        Result.BLOCKED,
        "the job reached its time limit",
        "raise `resources.time` (`--time` of sbatch), or resume from the last checkpoint",
    ),
    "OUT_OF_MEMORY": (
        Result.BLOCKED,
        "a process used more host memory than the job has",
        "raise `resources.memory` (`--mem` of sbatch), or use less",
    ),
    "PREEMPTED": (
        Result.BLOCKED,
        "Slurm preempted the job",
        "where it was not started again, allow requeueing (`launch.requeue.max_attempts`, `--requeue` of"
        " sbatch) and resume from the last checkpoint; a partition whose PreemptMode is CANCEL starts none"
        " again",
    ),
    "DEADLINE": (Result.BLOCKED, "the job's deadline passed", "submit again without the deadline"),
    "NODE_FAIL": (Result.BLOCKED, "a node of the job failed", "submit again; report the node to the site"),
    "BOOT_FAIL": (
        Result.BLOCKED,
        "a node of the job did not boot",
        "submit again; report the node to the site",
    ),
    "CANCELLED": (Result.BLOCKED, "somebody cancelled the job", "submit again"),
    "BATCH_SCRIPT_KILLED": (  # our word: Slurm only says that the job failed
        Result.BLOCKED,
        "the batch script was killed (SIGKILL), so Slurm ended the job",
        "look for `Out of memory` in the kernel log of the job's first node, or for somebody's `kill`",
    ),
    "REVOKED": (Result.BLOCKED, "another cluster of the federation took the job", "look for the job there"),
}
# These ends come from outside: lines that the logs hold after them are effects.
FROM_OUTSIDE = frozenset(
    {"PREEMPTED", "NODE_FAIL", "BOOT_FAIL", "CANCELLED", "BATCH_SCRIPT_KILLED", "REVOKED", "DEADLINE"}
)
# These findings say how a command ended, but not why: even an effect in a log says more.
ONLY_HOW_IT_ENDED = frozenset({"driver.exit-code"})
# These lines say even less: that something which was started has ended. A finding also names rank and node.
ONLY_THAT_IT_ENDED = frozenset({"effect.step-ended", "effect.terminated", "slurm.step-cancelled"})
# A line of the job's log that tells what all attempts came to, whatever the scheduler calls that.
REQUEUE_LIMIT = "slurm.requeue-limit"
# A worker's last word, and srun's about the agent of the head, which is its first task.
HEAD_GONE = re.compile(r"^jobspec: \S+: the head is gone: (.*)")
HEAD_KILLED = re.compile(r"srun: error: (\S+): task 0: (Killed)")
# srun's first word when somebody cancels its step; after the end of a task its word is another one.
STEP_CANCELLED = "srun: Job step aborted"
KILLED = "137"  # 128 + SIGKILL
# What `results.json` says, for launchers whose scheduler says nothing.
ENDED_AS = {"timeout": "TIMEOUT", "cancelled": "CANCELLED"}


def first_cause(
    evidence: Evidence, attempt: Attempt | None, deliverables: tuple[Deliverable, ...]
) -> Cause | None:
    """The first cause; None when nothing went wrong or no evidence names a cause."""
    if attempt is None:  # no agent started: the job's own log may say why
        attempt = Attempt(0, "", matches=evidence.job_matches)
    return next(_candidates(evidence, attempt, deliverables), None)


def _candidates(
    evidence: Evidence, attempt: Attempt, deliverables: tuple[Deliverable, ...]
) -> Iterator[Cause]:
    """Causes by rank; the first one wins."""
    attempt = as_tested(evidence, attempt)
    # A failure that the run survived did not end it, even where no other cause is known.
    matches = [match for match in attempt.own_matches if match.verdict != NOTE and not match.survived]
    yield from _early_findings(evidence, attempt)
    ended = _scheduler_cause(evidence, attempt)
    yield from _stalls(attempt, matches)
    late = [*_late_findings(evidence, attempt), *_lost_head(evidence, attempt)]
    stood_still = any(match.kind == STALL for match in matches)
    yield from (_from_match(match) for match in evidence.job_matches if match.signature == REQUEUE_LIMIT)
    # People cancel a run of theirs that has failed, too.
    outside = FROM_OUTSIDE - {"CANCELLED"} if evidence.foreign else FROM_OUTSIDE
    if ended is not None and ended.kind in outside and not stood_still:
        yield _with_lost_node(ended, attempt, late)
    dead, late = _dead_services(attempt, late)
    yield from dead
    noticed = [cause for cause in late if cause.kind not in ONLY_HOW_IT_ENDED]
    yield from _merge([_from_match(match) for match in _that_say_why(matches)], noticed)
    if ended is not None:
        yield ended
    weak = [match for match in matches if match.generic]
    yield from (_from_match(match) for match in weak if match.signature not in ONLY_THAT_IT_ENDED)
    yield from late
    yield from (_from_match(match) for match in weak)
    yield from (cause_from(item) for item in deliverables if item.status in (Status.FAIL, Status.BLOCKED))


def _stalls(attempt: Attempt, matches: list[Match]) -> Iterator[Cause]:
    """The stall that the run did not come out of, behind what the logs had said by then."""
    told: Event | None = None
    lines: Mapping[str, object] = {}
    for event in attempt.events:
        if event.finding is not None and event.finding.rule in STALLS:
            told = event
        elif event.data.get("what") == "stall":
            lines = {f"{attempt.folder}/{name}": count for name, count in event.data.get("lines", {}).items()}
        elif event.data.get("what") == "went-on":
            told = None
    if told is None or told.finding is None:
        return
    for match in _that_say_why(matches):
        until = lines.get(match.file)
        by_line = isinstance(until, int) and match.line <= until
        if by_line or (until is None and match.time and match.time < told.time):
            yield _from_match(match)
    yield _from_finding(attempt, told.finding, told)


def _dead_services(attempt: Attempt, late: list[Cause]) -> tuple[list[Cause], list[Cause]]:
    """Services that ended before any command failed, and the other causes without those that ended after one.

    What the driver says of a service that is gone is an effect, as is the end of one whose driver is gone.
    """
    results = attempt.results
    dead = [cause for cause in late if cause.kind == "service.ended"]
    rest = [cause for cause in late if cause.kind != "service.ended"]
    if results is None:
        return dead, rest
    until = min((item.end for item in results.commands if item.exit_code != 0), default=math.inf)
    early = [row for row in results.services if row.state == "died" and row.end <= until]
    told = [(f"service `{row.name}` ", row.node) for row in early]
    return [c for c in dead if any(c.text.startswith(begin) and c.node == node for begin, node in told)], rest


def _that_say_why(matches: list[Match]) -> list[Match]:
    """Matches that are no mere effects; where the run stood still, all those that rank before that."""
    stall = next((place for place, match in enumerate(matches) if match.kind == STALL), -1)
    return [match for place, match in enumerate(matches) if not match.generic or place < stall]


def _with_lost_node(ended: Cause, attempt: Attempt, late: list[Cause]) -> Cause:
    """The scheduler's end `NODE_FAIL`, with the node that was lost, else those that never came."""
    if ended.kind != "NODE_FAIL":
        return ended
    lost = next((cause for cause in late if cause.kind == "node.lost"), None)
    if lost is not None:
        text = f"{ended.text}: {lost.text}"
        return replace(lost, kind=ended.kind, text=text, why=ended.why, fix=ended.fix)
    absent = [finding for finding in attempt.findings if finding.rule == "node.absent"]
    if not absent:
        return ended
    text = "; ".join([f"{ended.text}: {absent[0].what}", *(finding.what for finding in absent[1:])])
    return replace(ended, text=text, node=absent[0].node if len(absent) == 1 else "")


def _lost_head(evidence: Evidence, attempt: Attempt) -> Iterator[Cause]:
    """The loss of the head's agent, which can leave no word itself: others tell of it in the job's log.

    Where no other node tells of it, a kill is all that is known: the tested command may have done it.
    """
    results = attempt.results
    told = results is not None and not (results.collecting and results.outcome == "ok")
    if told or evidence.foreign or evidence.plan.mode == "upstream" or _end_state(evidence, attempt):
        return
    place, how, name = None, "", ""
    for match in (match for match in attempt.matches if "/" not in match.file):
        if place is None and any(STEP_CANCELLED in line for line in (*match.context, match.text)):
            yield _cancelled_step(match)
            return
        if found := HEAD_KILLED.search(match.text):
            name = found[1]
        if found := HEAD_GONE.search(match.text) or (None if place else found):
            place, how = match, found[found.lastindex or 0]
    if place is None and evidence.scheduler.exit_code != KILLED:
        return
    name = name or _head_of(attempt)
    if not how or (how == "Killed" and _on_one_node(evidence, attempt)):
        yield _killed_agent(name, place)
        return
    last = attempt.events[-1] if attempt.events else None
    yield Cause(
        text=f"head node{f' `{name}`' if name else ''} left"
        f"{f' during `{last.phase}`' if last else ''}: {how}",
        kind="node.lost",
        verdict=Result.BLOCKED,
        file=place.file if place else "",
        line=place.line if place else 0,
        node=name,
        time=last.time if last else 0.0,
        why="its agent was killed or froze, or the network between the nodes failed",
        fix=f"see the last lines of {name or 'its'} logs, and the scheduler's view of the node",
    )


def _killed_agent(node: str, place: Match | None) -> Cause:
    return Cause(
        text=f"jobspec's agent was killed ({KILLED}): by the command, by lack of memory, or from outside; "
        "nothing shows which",
        kind=AGENT_KILLED,
        verdict=Result.BLOCKED,
        file=place.file if place else "scheduler.json",
        line=place.line if place else 0,
        node=node,
        fix="look for a `kill` in the command, and for `Out of memory` in its node's kernel log",
    )


def _on_one_node(evidence: Evidence, attempt: Attempt) -> bool:
    return evidence.plan.nodes == 1 and len({event.node for event in attempt.events if event.node}) <= 1


def _cancelled_step(match: Match) -> Cause:
    return Cause(
        text=match.text,
        kind="CANCELLED",
        verdict=Result.BLOCKED,
        file=match.file,
        line=match.line,
        why="somebody cancelled the job's step (`scancel JOB.0`): Slurm ends that with SIGKILL",
        fix="submit again; end a run with `jobspec cancel`, which lets it save",
    )


def _head_of(attempt: Attempt) -> str:
    """The one node that took part and never joined another; empty where that is not told."""
    named = {event.node for event in attempt.events if event.node}
    joined = {event.node for event in attempt.events if event.data.get("what") == "joined"}
    heads = named - joined
    return heads.pop() if len(heads) == 1 else ""


def _merge(lines: list[Cause], findings: list[Cause]) -> Iterator[Cause]:
    """Causes in order: lines older than the first finding or of its node, then findings, then all lines.

    After the loss of a node, other nodes complain about what they cannot reach: those lines are effects.
    """
    if findings:
        first = findings[0]
        yield from (
            line
            for line in lines
            if (line.time and line.time < first.time) or (line.node and line.node == first.node)
        )
        yield from findings
    yield from lines


def _early_findings(evidence: Evidence, attempt: Attempt) -> Iterator[Cause]:
    """Errors of the runtime before the driver, by time; a failed test is shown by its line of pytest."""
    events = [event for event in attempt.events if event.finding is not None and event.finding.is_error]
    for event in sorted(events, key=lambda item: item.time):
        if event.phase in BEFORE_DRIVER and event.finding is not None:
            cause = _from_finding(attempt, event.finding, event)
            tested = event.finding.rule == "checks.exit-code"
            yield (_failed_check(evidence, attempt) if tested else None) or cause


def _failed_check(evidence: Evidence, attempt: Attempt) -> Cause | None:
    for command in evidence.plan.checks:
        result = attempt.command(command.name)
        cause = check_cause(attempt, command, result) if result is not None else None
        if cause is not None:
            return cause
    return None


def _late_findings(evidence: Evidence, attempt: Attempt) -> Iterator[Cause]:
    """The runtime's errors about the driver, and those that only `results.json` holds."""
    events = {event.finding: event for event in attempt.events if event.finding is not None}
    for finding in attempt.findings:
        event = events.get(finding)
        if finding.is_error and (event is None or event.phase not in BEFORE_DRIVER):
            cause = _from_finding(attempt, finding, event)
            # How much memory a job gets is a setting; that it ran out says nothing of what is tested.
            memory = finding.rule == "driver.out-of-memory"
            yield replace(cause, verdict=Result.BLOCKED) if memory else cause


def _from_finding(attempt: Attempt, finding: Finding, event: Event | None) -> Cause:
    """A finding as a cause. Its place is the log that the finding names, else the event."""
    log = f"{attempt.folder}/{finding.file}"
    named = any(item.path == log for item in attempt.logs)
    if finding.rule.startswith("service."):
        return _of_service(attempt, finding, event, log)
    tested = finding.rule.startswith("driver.") and (event is None or event.phase not in BEFORE_DRIVER)
    return Cause(
        text=finding.what,
        kind=finding.rule,
        verdict=Result.FAIL if tested else Result.BLOCKED,
        file=log if named else (event.file if event else ""),
        line=finding.line if named else (event.line if event else 0),
        node=finding.node or (event.node if event else ""),
        time=event.time if event else 0.0,
        why=finding.why,
        fix=finding.fix,
    )


def _of_service(attempt: Attempt, finding: Finding, event: Event | None, log: str) -> Cause:
    """A service that ended or was never ready, with what triage knows of one of its last lines."""
    last = [
        m for m in attempt.matches if m.file == log and m.verdict != NOTE and m.text.strip() in finding.why
    ]
    known = next((match for match in last if not match.generic), None)
    place = event if event is not None and not any(item.path == log for item in attempt.logs) else None
    return Cause(
        text=finding.what,
        kind=finding.rule,
        verdict=Result.BLOCKED,
        file=place.file if place else log,
        line=known.line if known else (place.line if place else 0),
        node=finding.node,
        time=event.time if event else 0.0,
        why=f"{known.title}: {known.text.strip()}" if known else finding.why,
        fix=known.fix if known else finding.fix,
        source=known.source if known else "",
    )


def _from_match(match: Match) -> Cause:
    return Cause(
        text=match.text,
        kind=match.kind,
        verdict=Result.BLOCKED if match.verdict == "Blocked" else Result.FAIL,
        file=match.file,
        line=match.line,
        node=match.node,
        time=match.time or 0.0,
        why="; ".join([match.why or match.title, *match.facts]),
        fix=match.fix,
        signature=match.signature,
        source=match.source,
        context=match.context,
    )


def cause_from(item: Deliverable) -> Cause:
    """A deliverable that did not pass as a cause, for want of a more specific one."""
    place = item.evidence[0] if item.evidence else None
    return Cause(
        text=item.reason,
        kind=item.name,
        verdict=Result.BLOCKED if item.status is Status.BLOCKED else Result.FAIL,
        file=place.file if place else "",
        line=place.line if place else 0,
        fix=item.fix,
    )


def _end_state(evidence: Evidence, attempt: Attempt) -> str:
    """The state among `SCHEDULER_ENDS` in which the job ended; empty for any other."""
    state = evidence.scheduler.state.split(" ")[0]  # Slurm says `CANCELLED by 1000`
    if state not in SCHEDULER_ENDS and attempt.results is not None:
        state = ENDED_AS.get(attempt.results.outcome, "")
        if state == "CANCELLED" and evidence.scheduler.exit_code == KILLED:
            state = "BATCH_SCRIPT_KILLED"  # else the script hands the agents' own exit code on
    return state if state in SCHEDULER_ENDS else ""


def _scheduler_cause(evidence: Evidence, attempt: Attempt) -> Cause | None:
    state = _end_state(evidence, attempt)
    if not state:
        return None
    verdict, why, fix = SCHEDULER_ENDS[state]
    if state == "OUT_OF_MEMORY" and evidence.plan.slurm.memory:
        why = f"{why}; the spec limits it to {evidence.plan.slurm.memory}"
    reason = f" ({evidence.scheduler.reason})" if evidence.scheduler.reason not in ("", "None") else ""
    place = evidence.scheduler.place
    text = place.text or f"{state}{reason}"
    return Cause(text=text, kind=state, verdict=verdict, file=place.file, line=place.line, why=why, fix=fix)
