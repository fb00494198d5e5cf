"""What the tests of the checkouts prove, which run in phase `checks`. Pure.

A failed test is a fault of the tested code. Tests that could not run say nothing about the code.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from jobspec.log_search import Hints, find_lines
from jobspec.plan import CommandPlan, Plan
from jobspec.verdict import Cause, Deliverable, EvidenceItem, Result, Status

if TYPE_CHECKING:  # planning needs a few words from here, and these bring all readers of logs
    from jobspec.evidence.evidence import Attempt, CommandResult, Evidence
    from jobspec.evidence.pytest_log import TestLog
    from jobspec.triage import Match

BRIDGE = "megatron.bridge"
PREFIX = "checks-"  # of the command's name: `checks-<repo>`
NUMBER = "+"  # no repository's name has it: `checks-<repo>+2` is the second command of one repository
BRIDGE_CHECKS = "Bridge-side checks"
CHECKS_OF = "Checks of {}"
MISSING = re.compile(r"No module named '?([\w.]+)")
WITHOUT_TESTS = (
    "the Bridge's own tests are not shown: its provider, configuration and mappings are not tested"
)
WORST_FIRST = (Status.FAIL, Status.BLOCKED, Status.SKIPPED, Status.PASS)
ONLY_ASKED = "the tests of `{}` are those of `coverage.checks_only`: the guide's own did not run"
WHY_TESTED = "a test of the checkout fails: the tested code does not do what it should"
WHY_NOT_RUN = "the tests did not run: nothing is known about the tested code"


@dataclass(frozen=True)
class Outcome:
    """What one command of phase `checks` proves, with the deciding line as evidence."""

    status: Status
    reason: str
    evidence: tuple[EvidenceItem, ...] = ()
    fix: str = ""


def bridge_repo(plan: Plan) -> str:
    """Name of the repository of Megatron-Bridge, by its import proof, else by its name; else empty."""
    proved = next((proof.repo for proof in plan.proofs if proof.module == BRIDGE and proof.repo), "")
    named = (repo.name for repo in plan.repos if "bridge" in repo.name.lower())
    return proved or next(named, "")


def command_name(repo: str, number: int) -> str:
    """The name of the command that runs the tests of a repository's entry `number`, from 1."""
    return f"{PREFIX}{repo}" if number == 1 else f"{PREFIX}{repo}{NUMBER}{number}"


def tested_repo(command: CommandPlan) -> str:
    return command.name.removeprefix(PREFIX).partition(NUMBER)[0]


def checks_deliverable(evidence: Evidence, name: str, repo: str) -> Deliverable:
    """Whether all tests of `repo` passed; `Not requested` when `coverage.checks` does not name it."""
    commands = [item for item in evidence.plan.checks if tested_repo(item) == repo]
    if not commands:
        reason = "no test was asked for (`coverage.checks`)"
        return _not_requested(name, reason)
    outcomes = [judge_check(evidence.last, command) for command in commands]
    status = min((outcome.status for outcome in outcomes), key=WORST_FIRST.index)
    items = tuple(item for outcome in outcomes for item in outcome.evidence)
    reason = "; ".join(outcome.reason for outcome in outcomes)
    if ONLY_ASKED.format(repo) in evidence.plan.expect.limitations:
        reason += "; not the guide's tests (`coverage.checks_only`)"
    return Deliverable(name, status, items, reason, settled=True)


def _not_requested(name: str, reason: str) -> Deliverable:
    """Without the Bridge's tests a level may pass; then the report says what they would have shown."""
    limits = (WITHOUT_TESTS,) if name == BRIDGE_CHECKS else ()
    return Deliverable(name, Status.NOT_REQUESTED, reason=reason, required=False, settled=True, limits=limits)


def bridge_checks(evidence: Evidence, name: str = BRIDGE_CHECKS) -> Deliverable:
    """The guides' deliverable "Bridge-side checks"; for a foreign run from its pytest logs."""
    if evidence.foreign:
        return _foreign_checks(evidence, name)
    return checks_deliverable(evidence, name, bridge_repo(evidence.plan))


def other_checks(evidence: Evidence, deliverables: Sequence[Deliverable]) -> Iterator[Deliverable]:
    """One deliverable for the tests of each repository that the adapter's `deliverables` leave out."""
    bridge = bridge_repo(evidence.plan) if any(item.name == BRIDGE_CHECKS for item in deliverables) else ""
    for repo in dict.fromkeys(map(tested_repo, evidence.plan.checks)):
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
    summary = f"{tests.summary} (`{shown(command)}`)"
    if tests.failed and not _missing_package(tests):
        item = EvidenceItem(result.log, tests.failure_line or tests.line, tests.failure or tests.summary)
        return Outcome(
            Status.FAIL, summary, (item,), "correct the fault that the test shows, or the test itself"
        )
    counted = EvidenceItem(result.log, tests.line, tests.summary)
    if tests.failed:
        item = EvidenceItem(result.log, tests.failure_line, f"{tests.failure}: {tests.error}")
        return Outcome(Status.BLOCKED, summary, (item,), "install the package in the driver's environment")
    if result.exit_code != 0 or not tests.passed:
        reason = f"no test passed: {summary}" if not tests.passed else f"{summary}, but {ended.text}"
        return Outcome(Status.BLOCKED, reason, (counted, ended), "see the log; correct `coverage.checks`")
    return Outcome(Status.PASS, summary, (counted,))


def check_cause(attempt: Attempt, command: CommandPlan, result: CommandResult) -> Cause | None:
    """Why the tests of `command` did not pass: the first failed test, else the obstacle; None for a pass."""
    outcome = judge_check(attempt, command)
    if outcome.status is Status.PASS:
        return None
    item = outcome.evidence[0] if outcome.evidence else EvidenceItem(result.log)
    failed = outcome.status is Status.FAIL
    match = None if failed else _match(attempt, result.log)
    if match is not None:
        item = EvidenceItem(match.file, match.line, match.text)
    return Cause(
        text=item.text or outcome.reason,
        kind=match.kind if match else "checks",
        verdict=Result.FAIL if failed else Result.BLOCKED,
        file=item.file,
        line=item.line,
        time=result.end,
        why=WHY_TESTED if failed else WHY_NOT_RUN,
        fix=match.fix if match else outcome.fix,
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
    """The outcome by exit code alone. Without its last line pytest did not end, which is `Blocked`."""
    if result.exit_code == 0:
        return Outcome(Status.PASS, f"`{shown(command)}` exited with 0", (ended,))
    is_pytest = any("pytest" in word for word in command.argv)
    blocked = is_pytest or result.exit_code in (126, 127) or result.exit_code is None
    if not blocked:
        return Outcome(Status.FAIL, f"`{shown(command)}` exited with {result.exit_code}", (ended,))
    match = _match(attempt, result.log)
    items = (EvidenceItem(match.file, match.line, match.text), ended) if match else (ended,)
    reason = f"no test ran to its end: `{shown(command)}` exited with {result.exit_code}"
    return Outcome(Status.BLOCKED, reason, items, "read the end of the log")


def _match(attempt: Attempt, log: str) -> Match | None:
    """The first line of the tests' log that shows a cause outside the tests."""
    return next(
        (m for m in attempt.matches if m.file == log and not m.generic and m.verdict == "Blocked"), None
    )


def _missing_package(tests: TestLog) -> bool:
    """Whether the first failure is a missing package that is not the Bridge's own."""
    missing = MISSING.search(tests.failure) or MISSING.search(tests.error)
    only_errors = not tests.counts.get("failed", 0) and not tests.passed
    return missing is not None and only_errors and missing.group(1).split(".")[0] != "megatron"


def bridge_logs(evidence: Evidence) -> list[tuple[str, TestLog]]:
    """Logs with sessions of pytest whose root folder is a checkout of Megatron-Bridge."""
    from jobspec.evidence.pytest_log import read_test_log

    attempt = evidence.last
    root_line = Hints(("rootdir: ",))  # logs of training are long, and few have a session of pytest
    logs = [(log.path, evidence.root / log.path) for log in (attempt.logs if attempt else ())]
    read = ((name, read_test_log(path)) for name, path in logs if any(find_lines(path, root_line)))
    return [(path, tests) for path, tests in read if tests is not None and "bridge" in tests.root.lower()]


def _foreign_checks(evidence: Evidence, name: str) -> Deliverable:
    found = bridge_logs(evidence)
    if not found:
        reason = "jobspec found no log of the Bridge's own tests among the files"
        return Deliverable(name, Status.SKIPPED, reason=reason, required=False)
    path, tests = next(((path, t) for path, t in found if t.failed), found[0])
    if tests.failed:
        item = EvidenceItem(path, tests.failure_line or tests.line, tests.failure or tests.summary)
        return Deliverable(name, Status.FAIL, (item,), tests.summary, settled=True)
    item = EvidenceItem(path, tests.line, tests.summary)
    status = Status.PASS if tests.passed else Status.SKIPPED
    return Deliverable(name, status, (item,), tests.summary, required=bool(tests.passed), settled=True)
