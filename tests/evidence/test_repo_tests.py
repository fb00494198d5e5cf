"""Tests of the checkouts: what pytest's real output says, and what that means for the run."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import replace
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from jobspec.evidence.evidence import Attempt, CommandResult, Evidence, LogFile
from jobspec.evidence.pytest_log import TestLog, parse_test_log, read_test_log
from jobspec.evidence.read import read_evidence
from jobspec.evidence.repo_tests import bridge_checks, bridge_repo, check_cause, judge_check
from jobspec.judging.judge import judge
from jobspec.plan import CommandPlan, ImportProof, Plan, RepoPlan
from jobspec.triage import scan_files
from jobspec.verdict import Deliverable, Result, Status
from tests.kits.verdict_kit import PHASES, PLAN, RunFolder, StandInFramework, learning_rows, passing_run

PYTEST = CommandPlan("checks-bridge", ("python3", "-m", "pytest", "-q", "tests"))
TESTS = {
    "test_a.py": "import pytest\ndef test_good(): pass\ndef test_bad(): assert 1 == 2\n"
    "@pytest.mark.skip\ndef test_later(): pass\n",
    "test_good.py": "def test_one(): pass\ndef test_two(): pass\n",
    "test_skipped.py": "import pytest\npytestmark = pytest.mark.skip\ndef test_one(): pass\n",
    "test_missing.py": "import no_such_package\n",
    "test_own.py": "import megatron.bridge_that_is_not_there\n",
    "test_setup.py": "import pytest\n@pytest.fixture\ndef one(): 1 / 0\ndef test_it(one): pass\n",
}


@cache
def real_output(name: str, *options: str) -> tuple[str, int]:
    """What a real pytest prints for one of `TESTS`, and its exit code."""
    with TemporaryDirectory() as folder:
        checkout = Path(folder, "Megatron-Bridge")
        checkout.mkdir()
        (checkout / "pytest.ini").write_text("[pytest]\n")
        (checkout / name).write_text(TESTS.get(name, ""))
        argv = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", *options, name]
        env = {**os.environ, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
        done = subprocess.run(
            argv,
            cwd=checkout,
            env=env,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
        )
    return done.stdout, done.returncode


def real_log(tmp_path: Path, name: str, *options: str) -> tuple[Path, int]:
    """The log of a real pytest, and its exit code."""
    text, code = real_output(name, *options)
    log = tmp_path / "checks-bridge.log"
    log.write_text(text)
    return log, code


def attempt_with(log: Path, code: int | None, tests: TestLog | None) -> tuple[Attempt, CommandResult]:
    from jobspec.evidence.evidence import Results

    result = CommandResult("checks-bridge", code, log=log.name, phase="checks", tests=tests)
    results = Results("failed", code, commands=(result,))
    matches = tuple(scan_files([(log, log.name, "")]))
    return Attempt(1, "", results=results, logs=(LogFile(log.name, "", 1),), matches=matches), result


@pytest.mark.parametrize("options", [("-q",), (), ("-v",), ("-q", "--color=yes"), ("-q", "--tb=no")])
def test_counts_and_first_failure_of_every_form_of_output(tmp_path: Path, options: tuple[str, ...]) -> None:
    tests = read_test_log(real_log(tmp_path, "test_a.py", *options)[0])
    assert tests is not None
    assert (tests.passed, tests.failed, tests.counts["skipped"]) == (1, 1, 1)
    assert tests.failure.startswith("FAILED test_a.py::test_bad - ")
    lines = (tmp_path / "checks-bridge.log").read_text().splitlines()
    assert "test_bad" in lines[tests.failure_line - 1]
    assert "1 failed, 1 passed" in lines[tests.line - 1] or "--color" in " ".join(options)


def test_verbose_names_the_test_where_there_is_no_short_summary(tmp_path: Path) -> None:
    tests = read_test_log(real_log(tmp_path, "test_a.py", "-v", "-rN")[0])
    assert tests is not None and tests.failure.startswith("test_a.py::test_bad FAILED")


def test_root_folder_is_known(tmp_path: Path) -> None:
    tests = read_test_log(real_log(tmp_path, "test_good.py")[0])
    assert tests is not None and tests.root.endswith("/Megatron-Bridge")


@pytest.mark.parametrize(
    ("name", "options", "code", "status", "word"),
    [
        ("test_good.py", ("-q",), 0, Status.PASS, "2 passed"),
        ("test_a.py", ("-q",), 1, Status.FAIL, "1 failed, 1 passed, 1 skipped"),
        ("test_skipped.py", ("-q",), 0, Status.BLOCKED, "no test passed"),
        ("test_missing.py", ("-q",), 2, Status.BLOCKED, "1 error"),
        ("test_own.py", ("-q",), 2, Status.FAIL, "1 error"),
        ("test_setup.py", ("-q",), 1, Status.FAIL, "1 error"),
        ("test_good.py", ("--no-such-option",), 4, Status.BLOCKED, "exited with 4"),
        ("test_empty.py", ("-q",), 5, Status.BLOCKED, "no test"),
    ],
)
def test_status_follows_what_pytest_says(
    tmp_path: Path, name: str, options: tuple[str, ...], code: int, status: Status, word: str
) -> None:
    log, found = real_log(tmp_path, name, *options)
    assert found == code
    attempt, result = attempt_with(log, code, read_test_log(log))
    outcome = judge_check(attempt, PYTEST)
    assert outcome.status is status
    assert word in outcome.reason
    cause = check_cause(attempt, PYTEST, result)
    assert (cause is None) == (status is Status.PASS)


def test_exit_code_zero_does_not_hide_a_failed_test(tmp_path: Path) -> None:
    log, _ = real_log(tmp_path, "test_a.py")
    attempt, _ = attempt_with(log, 0, read_test_log(log))
    assert judge_check(attempt, PYTEST).status is Status.FAIL


def test_pytest_that_is_not_installed_is_blocked_by_that_line(tmp_path: Path) -> None:
    log = tmp_path / "checks-bridge.log"
    log.write_text("/usr/bin/python3: No module named pytest\n")
    attempt, result = attempt_with(log, 1, None)
    cause = check_cause(attempt, PYTEST, result)
    assert judge_check(attempt, PYTEST).status is Status.BLOCKED
    assert cause is not None and cause.verdict is Result.BLOCKED


@pytest.mark.parametrize(("code", "status"), [(0, Status.PASS), (3, Status.FAIL), (127, Status.BLOCKED)])
def test_other_command_is_judged_by_its_exit_code(tmp_path: Path, code: int, status: Status) -> None:
    log = tmp_path / "checks-bridge.log"
    log.write_text("fine\n")
    attempt, _ = attempt_with(log, code, None)
    assert judge_check(attempt, CommandPlan("checks-bridge", ("make", "check"))).status is status


def test_several_sessions_count_together() -> None:
    tests = parse_test_log(["3 passed in 0.10s", "noise", "===== 1 failed, 2 passed in 1.00s =====", "x"])
    assert tests is not None and (tests.passed, tests.failed, tests.line) == (5, 1, 3)


@pytest.mark.parametrize("line", ["all 3 passed in review", "step 4 in 2.0s", "3 passed in time", ""])
def test_prose_is_no_summary(line: str) -> None:
    assert parse_test_log([line]) is None


@pytest.mark.parametrize(
    ("plan", "name"),
    [
        (Plan("", "", "", "", "", proofs=(ImportProof("megatron.bridge", "/x", "mine"),)), "mine"),
        (
            Plan("", "", "", "", "", repos=(RepoPlan("a", "/a"), RepoPlan("Megatron-Bridge", "/b"))),
            "Megatron-Bridge",
        ),
        (Plan("", "", "", "", ""), ""),
    ],
)
def test_bridge_is_the_proved_repository(plan: Plan, name: str) -> None:
    assert bridge_repo(plan) == name


class GuideFramework(StandInFramework):
    """A stand-in that tells of the Bridge's tests itself."""

    def judge(self, evidence: Evidence) -> list[Deliverable]:
        return [bridge_checks(evidence), *super().judge(evidence)]


CHECKED = replace(
    PLAN,
    checks=(PYTEST, replace(PYTEST, name="checks-trainer")),
    repos=(*PLAN.repos, RepoPlan("trainer", "/t")),
)


def test_passed_checks_stay_passed_when_the_driver_fails(tmp_path: Path) -> None:
    run = RunFolder(tmp_path, CHECKED)
    for phase in (*PHASES[:5], "checks"):
        run.phase(phase)
    run.phase("driver", outcome="failed")
    for name in ("checks-bridge", "checks-trainer"):
        run.log("OSError: [Errno 28] No space left on device\n2 passed in 0.10s\n", name=f"{name}.log")
    run.log(
        "step:1 - actor/loss:0.5 - training/global_step:1\n"
        "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2 GiB\n"
    )
    run.metrics(learning_rows(20))
    run.write()
    commands = [
        {"name": name, "phase": "checks", "exit_code": 0, "log": f"logs/n1/{name}.log"}
        for name in ("checks-bridge", "checks-trainer")
    ]
    run.results("failed", 1, commands=[*commands, {"name": "train", "phase": "driver", "exit_code": 1}])
    verdict = judge(read_evidence(run.root), GuideFramework())
    statuses = {item.name: item.status for item in verdict.deliverables}
    assert (statuses["Bridge-side checks"], statuses["Checks of trainer"]) == (Status.PASS, Status.PASS)
    assert "Checks of bridge" not in statuses
    # The tests' own log says something that looks like a cause, and came first.
    assert verdict.result is Result.BLOCKED
    assert verdict.first_cause is not None and verdict.first_cause.kind == "gpu-memory"


@pytest.mark.parametrize(
    ("second", "status", "line"),
    [
        ("3 passed in 0.20s\n", Status.PASS, "2 passed in 0.10s"),
        (
            "1 failed, 1 passed in 0.20s\nFAILED tests/a.py::test_b - assert 0\n",
            Status.FAIL,
            "FAILED tests/a.py",
        ),
        (None, Status.SKIPPED, "2 passed in 0.10s"),
    ],
)
def test_all_commands_of_one_repository_count(
    tmp_path: Path, second: str | None, status: Status, line: str
) -> None:
    """`checks-bridge+2` is the second entry of `coverage.checks` for the Bridge."""
    other = replace(PYTEST, name="checks-bridge+2")
    run = RunFolder(tmp_path, replace(CHECKED, checks=(PYTEST, other)))
    run.phase("checks", outcome="failed" if status is not Status.PASS else "ok")
    texts = {"checks-bridge": "2 passed in 0.10s\n", **({other.name: second} if second else {})}
    for name, text in texts.items():
        run.log(text, name=f"{name}.log")
    run.write()
    code = int(status is not Status.PASS)
    commands = [
        {"name": name, "phase": "checks", "exit_code": code, "log": f"logs/n1/{name}.log"} for name in texts
    ]
    commands[0]["exit_code"] = 0
    run.results("failed" if code else "ok", code, commands=commands)
    told = judge(read_evidence(run.root), GuideFramework()).deliverable("Bridge-side checks")
    assert told is not None and told.status is status
    assert any(item.text.startswith(line) for item in told.evidence), told
    assert told.reason.startswith("2 passed in 0.10s") and "; " in told.reason


def test_nobody_asked_for_the_tests(tmp_path: Path) -> None:
    verdict = judge(read_evidence(passing_run(tmp_path).root), GuideFramework())
    item = verdict.deliverable("Bridge-side checks")
    assert item is not None and item.status is Status.NOT_REQUESTED and item.reason
    assert verdict.result is Result.PASS


def test_tests_that_were_cut_off_are_blocked(tmp_path: Path) -> None:
    run = RunFolder(tmp_path, CHECKED)
    for phase in PHASES[:5]:
        run.phase(phase)
    run.event("checks", "start")
    run.event("checks", "progress", data={"what": "command", "name": "checks-bridge"})
    run.log("OSError: [Errno 28] No space left on device\n", name="checks-bridge.log")
    run.write()
    run.scheduler("TIMEOUT")
    verdict = judge(read_evidence(run.root), GuideFramework())
    statuses = {item.name: item.status for item in verdict.deliverables}
    assert (statuses["Bridge-side checks"], statuses["Checks of trainer"]) == (Status.BLOCKED, Status.SKIPPED)
    assert verdict.first_cause is not None and verdict.first_cause.kind == "TIMEOUT"


def test_tests_that_passed_are_proved_by_the_event_alone(tmp_path: Path) -> None:
    """The head died during training: there is no `results.json`, but the phase had ended."""
    run = RunFolder(tmp_path, CHECKED)
    for phase in (*PHASES[:5], "checks"):
        run.phase(phase)
    run.event("driver", "start")
    run.write()
    item = judge(read_evidence(run.root), GuideFramework()).deliverable("Bridge-side checks")
    assert item is not None and item.status is Status.PASS
    assert item.evidence[0].file == "attempts/1/events.jsonl"


def test_foreign_log_of_the_bridges_tests_is_judged(tmp_path: Path) -> None:
    log, _ = real_log(tmp_path, "test_a.py")
    attempt = Attempt(1, "", logs=(LogFile(log.name, "", 1),))
    plan = Plan("", "", "", "", "")
    item = bridge_checks(Evidence(tmp_path, plan, attempts=(attempt,), foreign=True))
    assert (item.status, item.required) == (Status.FAIL, True)
    other = bridge_checks(Evidence(tmp_path, plan, attempts=(replace(attempt, logs=()),), foreign=True))
    assert (other.status, other.required) == (Status.SKIPPED, False)
