"""Phase `checks` in the agents: before the driver, on the head alone, ended by whatever ends a run."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

import pytest

from jobspec.plan import CommandPlan
from jobspec.runtime.base.identity import from_environment
from jobspec.runtime.head.shutdown import no_test_ran
from jobspec.runtime.node.agent import Node
from tests.kits.agent_lab import make_run, running, shell

TOUCH = shell("touch $JOBSPEC_RUN_DIR/trained")


def check(text: str, name: str = "checks-bridge") -> CommandPlan:
    return shell(text, name=name)


def test_checks_end_before_the_driver_starts(tmp_path: Path) -> None:
    checks = (check("echo one"), check("echo two", "checks-trainer"))
    with running(tmp_path, TOUCH, checks=checks) as run:
        run.agent()
        code, output = run.finish()
        rows = [(row["phase"], row["event"]) for row in run.events() if not row["node"]]
        results = run.results()
        (host,) = [row["name"] for row in results["nodes"]]
    assert code == 0, output
    assert rows.index(("checks", "end")) < rows.index(("driver", "start"))
    assert [row["data"]["name"] for row in run.events() if row["phase"] == "checks" and "data" in row] == [
        "checks-bridge",
        "checks-trainer",
    ]
    assert [(row["name"], row["phase"], row["exit_code"], row["log"]) for row in results["commands"]] == [
        ("checks-bridge", "checks", 0, f"logs/{host}/checks-bridge.log"),
        ("checks-trainer", "checks", 0, f"logs/{host}/checks-trainer.log"),
        ("train", "driver", 0, f"logs/{host}/train.log"),
    ]


def test_run_without_checks_has_no_such_phase(tmp_path: Path) -> None:
    with running(tmp_path, TOUCH) as run:
        run.agent()
        run.finish()
        assert "checks" not in {row["phase"] for row in run.events()}


def test_failing_check_ends_the_run_with_its_exit_code(tmp_path: Path) -> None:
    checks = (check("echo 'E   assert 1 == 2'; exit 7"), check("touch $JOBSPEC_RUN_DIR/second", "checks-b"))
    with running(tmp_path, TOUCH, checks=checks) as run:
        run.agent()
        code, output = run.finish()
        results = run.results()
        assert not (run.root / "trained").exists() and not (run.root / "second").exists()
    assert code == 7
    assert (results["outcome"], results["first_phase_failed"]) == ("failed", "checks")
    assert results["findings"][0]["rule"] == "checks.exit-code"
    assert results["findings"][0]["file"].endswith("/checks-bridge.log")
    assert "driver" not in {row["phase"] for row in results["phases"]}
    # In the job's log triage would take it for a line of the run itself.
    assert "assert 1 == 2" not in output


@pytest.mark.parametrize(
    ("command", "code", "ran_none"),
    [
        (CommandPlan("c", ("python3", "-m", "pytest", "x")), 4, True),
        (CommandPlan("c", ("uv", "run", "pytest")), 5, True),
        (CommandPlan("c", ("cd x && pytest",), shell=True), 5, True),  # noqa: S604 - a field of the plan
        (CommandPlan("c", ("python3", "-m", "pytest", "x")), 1, False),
        (CommandPlan("c", ("make", "check")), 4, False),
    ],
)
def test_exit_codes_that_say_no_test_ran(command: CommandPlan, code: int, ran_none: bool) -> None:
    assert no_test_ran(command, code) is ran_none


def test_cancelled_tests_are_cancelled(tmp_path: Path) -> None:
    with running(tmp_path, TOUCH, checks=(check("touch $JOBSPEC_RUN_DIR/up; sleep 300"),)) as run:
        process = run.agent()
        run.wait_event("checks", "progress")
        process.send_signal(signal.SIGTERM)
        code, output = run.finish()
        results = run.results()
        assert run.leftovers() == []
    assert code == 143, output
    assert (results["outcome"], results["first_phase_failed"]) == ("cancelled", "checks")
    assert not (run.root / "trained").exists()


def test_command_that_is_stopped_before_it_starts_does_not_start(tmp_path: Path) -> None:
    """A signal may come between the head's call and the start of the program."""
    run = make_run(tmp_path, TOUCH)
    who = from_environment(run.root, {"JOBSPEC_TOKEN": run.token, "JOBSPEC_ATTEMPT": "1"})
    node = Node(run.plan, who, {}, lambda message: None)
    node.handle("stop_command", {"grace_s": 1.0})
    master = {"master_addr": "127.0.0.1", "master_port": 1}
    reply = node.handle("command", {"phase": "driver", "index": 0, "master": master, "env": {}})
    assert reply == {"ended": [], "findings": []}
    assert not (run.root / "trained").exists()


def test_check_runs_on_the_head_alone_in_the_drivers_environment(tmp_path: Path) -> None:
    text = "echo $JOBSPEC_ATTEMPT $FLAVOUR $PWD >> $JOBSPEC_RUN_DIR/checked"
    command = shell(text, name="checks-bridge", cwd=str(tmp_path), env={"FLAVOUR": "plain"})
    train = shell('echo "$NODE_RANK" >> $JOBSPEC_RUN_DIR/trained', on="all")
    with running(tmp_path, train, checks=(command,), nodes=2) as run:
        run.agent(0)
        run.agent(1)
        code, output = run.finish()
        assert code == 0, output
        assert (run.root / "checked").read_text() == f"1 plain {tmp_path}\n"
        assert sorted((run.root / "trained").read_text().split()) == ["0", "1"]


def test_node_that_is_lost_meanwhile_blocks(tmp_path: Path) -> None:
    with running(tmp_path, TOUCH, checks=(check("sleep 300"),), nodes=2) as run:
        run.agent(0)
        run.agent(1)
        run.wait_event("checks", "progress")
        os.kill(run.agent_pid(1), signal.SIGKILL)
        code, output = run.finish()
        results = run.results()
    assert code == 3, output
    assert (results["outcome"], results["findings"][0]["rule"]) == ("blocked", "node.lost")


def test_secret_in_a_tests_log_is_redacted(tmp_path: Path) -> None:
    command = CommandPlan("checks-a", (sys.executable, "-c", "import os; print(os.environ['HF_TOKEN'])"))
    with running(tmp_path, TOUCH, checks=(command,), secrets=("HF_TOKEN",)) as run:
        run.agent(env={"HF_TOKEN": "hf_0123456789"})
        run.finish()
        (log,) = (run.attempt / "logs").glob("*/checks-a.log")
        assert log.read_text() == "[redacted HF_TOKEN]\n"
