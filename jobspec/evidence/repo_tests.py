"""Tests of the checkouts, phase `checks`: what a run of them proves. Pure.

A test that fails is a fault of what is tested. Tests that could not run say nothing about it.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from jobspec.evidence.evidence import Attempt, CommandResult, Evidence
from jobspec.evidence.pytest_log import TestLog
from jobspec.plan import CommandPlan, Plan
from jobspec.triage import Match
from jobspec.verdict import Cause, Deliverable, EvidenceItem, Result, Status

BRIDGE = "megatron.bridge"
PREFIX = "checks-"  # of the command's name: `checks-<repo>`
BRIDGE_CHECKS = "Bridge-side checks"
CHECKS_OF = "Checks of {}"
MISSING = re.compile(r"No module named '?([\w.]+)")
WHY_TESTED = "a test of the checkout fails: what it tests does not do what it should"
WHY_NOT_RUN = "the tests did not run: that says nothing about what they test"


@dataclass(frozen=True)
class Outcome:
    """What one command of phase `checks` proves, and the line that says so."""

    status: Status
    reason: str
    evidence: tuple[EvidenceItem, ...] = ()
    fix: str = ""


def bridge_repo(plan: Plan) -> str:
    """Name of the repository that is Megatron-Bridge: the one with its import proof, else by its name."""
    proved = next((proof.repo for proof in plan.proofs if proof.module == BRIDGE and proof.repo), "")
    named = (repo.name for repo in plan.repos if "bridge" in repo.name.lower())
    return proved or next(named, "")


def checks_deliverable(evidence: Evidence, name: str, repo: str) -> Deliverable:
    """Whether the tests of `repo` passed; `Not requested` when `coverage.checks` does not name it."""
    command = next((item for item in evidence.plan.checks if item.name == PREFIX + repo), None)
    if command is None:
        reason = "no test of it was asked for (`coverage.checks`)"
        return Deliverable(name, Status.NOT_REQUESTED, reason=reason, required=False, settled=True)
    found = judge_check(evidence.last, command)
    return Deliverable(name, found.status, found.evidence, found.reason, settled=True)


def bridge_checks(evidence: Evidence, name: str = BRIDGE_CHECKS) -> Deliverable:
    """The guides' deliverable "Bridge-side checks"; for files of another run, what their pytest logs say."""
    if evidence.foreign:
        return _foreign_checks(evidence, name)
    return checks_deliverable(evidence, name, bridge_repo(evidence.plan))


def other_checks(evidence: Evidence, told: Sequence[Deliverable]) -> Iterator[Deliverable]:
    """The tests of each repository that no deliverable of the adapter tells of."""
    bridge = bridge_repo(evidence.plan) if any(item.name == BRIDGE_CHECKS for item in told) else ""
    for command in evidence.plan.checks:
        repo = command.name.removeprefix(PREFIX)
        if repo != bridge:
            yield checks_deliverable(evidence, CHECKS_OF.format(repo), repo)


def judge_check(attempt: Attempt | None, command: CommandPlan) -> Outcome:
    """What the evidence says about one command of phase `checks`."""
    result = attempt.command(command.name) if attempt else None
    if attempt is None or result is None:
        return _not_ended(attempt, command)
    ended = EvidenceItem(result.log, text=f"`{command.name}` exited with {result.exit_code}")
    tests = result.tests
    if tests is None:
        return _without_summary(attempt, command, result, ended)
    told = f"{tests.summary} (`{shown(command)}`)"
    if tests.failed and not _missing_package(tests):
        item = EvidenceItem(result.log, tests.failure_line or tests.line, tests.failure or tests.summary)
        return Outcome(Status.FAIL, told, (item,), "correct what the test shows, or the test")
    counted = EvidenceItem(result.log, tests.line, tests.summary)
    if tests.failed:
        item = EvidenceItem(result.log, tests.failure_line, f"{tests.failure}: {tests.error}")
        return Outcome(Status.BLOCKED, told, (item,), "install the package in the driver's environment")
    if result.exit_code != 0 or not tests.passed:
        reason = f"no test passed: {told}" if not tests.passed else f"{told}, but {ended.text}"
        return Outcome(Status.BLOCKED, reason, (counted, ended), "see the log; correct `coverage.checks`")
    return Outcome(Status.PASS, told, (counted,))


def check_cause(attempt: Attempt, command: CommandPlan, result: CommandResult) -> Cause | None:
    """Why the tests of `command` did not pass: the first failed test, else what kept them from running."""
    found = judge_check(attempt, command)
    if found.status is Status.PASS:
        return None
    item = found.evidence[0] if found.evidence else EvidenceItem(result.log)
    failed = found.status is Status.FAIL
    match = None if failed else _match(attempt, result.log)
    if match is not None:
        item = EvidenceItem(match.file, match.line, match.text)
    return Cause(
        text=item.text or found.reason,
        kind=match.kind if match else "checks",
        verdict=Result.FAIL if failed else Result.BLOCKED,
        file=item.file,
        line=item.line,
        time=result.end,
        why=WHY_TESTED if failed else WHY_NOT_RUN,
        fix=match.fix if match else found.fix,
        signature=match.signature if match else "",
        context=match.context if match else (),
    )


def shown(command: CommandPlan) -> str:
    """The command as people type it."""
    return command.argv[0] if command.shell else shlex.join(command.argv)


def _not_ended(attempt: Attempt | None, command: CommandPlan) -> Outcome:
    if attempt is None or not attempt.started("checks"):
        return Outcome(Status.SKIPPED, "an earlier phase stopped the run")
    end = attempt.ended("checks")
    if end is not None and end.outcome == "ok":  # no `results.json` yet, or none ever
        item = EvidenceItem(end.file, end.line, "checks ended well")
        return Outcome(Status.PASS, f"`{shown(command)}` exited with 0", (item,))
    begun = any(
        event.phase == "checks" and event.data.get("name") == command.name for event in attempt.events
    )
    if not begun:
        return Outcome(Status.SKIPPED, "an earlier check stopped the run")
    return Outcome(Status.BLOCKED, f"`{command.name}` did not end on its own")


def _without_summary(
    attempt: Attempt, command: CommandPlan, result: CommandResult, ended: EvidenceItem
) -> Outcome:
    """A command that is not pytest is judged by its exit code; pytest without its last line did not end."""
    if result.exit_code == 0:
        return Outcome(Status.PASS, f"`{shown(command)}` exited with 0", (ended,))
    is_pytest = any("pytest" in word for word in command.argv)
    blocked = is_pytest or result.exit_code in (126, 127) or result.exit_code is None
    if not blocked:
        return Outcome(Status.FAIL, f"`{shown(command)}` exited with {result.exit_code}", (ended,))
    match = _match(attempt, result.log)
    items = (EvidenceItem(match.file, match.line, match.text), ended) if match else (ended,)
    reason = f"no test ran to its end: `{shown(command)}` exited with {result.exit_code}"
    return Outcome(Status.BLOCKED, reason, items, "see the end of its log")


def _match(attempt: Attempt, log: str) -> Match | None:
    """The line of the tests' log that tells of a cause outside."""
    return next(
        (m for m in attempt.matches if m.file == log and not m.generic and m.verdict == "Blocked"), None
    )


def _missing_package(tests: TestLog) -> bool:
    """Whether the first failure is a package that is not there, and not one of the Bridge's own."""
    found = MISSING.search(tests.failure) or MISSING.search(tests.error)
    only_errors = not tests.counts.get("failed", 0) and not tests.passed
    return found is not None and only_errors and found.group(1).split(".")[0] != "megatron"


def _foreign_checks(evidence: Evidence, name: str) -> Deliverable:
    """Sessions of pytest whose root folder is a checkout of Megatron-Bridge."""
    from jobspec.evidence.pytest_log import read_test_log

    attempt = evidence.last
    read = ((log.path, read_test_log(evidence.root / log.path)) for log in (attempt.logs if attempt else ()))
    found = [(path, t) for path, t in read if t is not None and "bridge" in t.root.lower()]
    if not found:
        reason = "no log of the Bridge's own tests is among the files"
        return Deliverable(name, Status.NOT_REQUESTED, reason=reason, required=False, settled=True)
    path, tests = next(((path, t) for path, t in found if t.failed), found[0])
    if tests.failed:
        item = EvidenceItem(path, tests.failure_line or tests.line, tests.failure or tests.summary)
        return Deliverable(name, Status.FAIL, (item,), tests.summary, settled=True)
    item = EvidenceItem(path, tests.line, tests.summary)
    status = Status.PASS if tests.passed else Status.SKIPPED
    return Deliverable(name, status, (item,), tests.summary, required=bool(tests.passed), settled=True)
