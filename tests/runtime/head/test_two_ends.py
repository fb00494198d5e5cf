"""Ends that come at the same moment as something else: one verdict, with its cause, and nothing goes on."""

from __future__ import annotations

import errno
import os
import shutil
import signal
import sys
import threading
import time
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from jobspec.finding import Finding, error
from jobspec.plan import CollectPlan, Plan, SlurmPlan
from jobspec.runtime.base.canary import write_canary
from jobspec.runtime.base.identity import from_environment
from jobspec.runtime.base.redact import Redactor
from jobspec.runtime.head import shutdown
from jobspec.runtime.head.attempt import Attempt
from jobspec.runtime.head.nodes import RunStoppedError
from jobspec.runtime.head.phases import Phases
from jobspec.runtime.head.record import FAILED, Cause, blocked, by_signal
from jobspec.runtime.node import collect
from jobspec.runtime.raycluster import process
from jobspec.runtime.raycluster.process import Probe, RayNode, RayPorts, RayStart
from tests.kits.agent_lab import RAY, Run, make_run, running, shell

PATIENCE_S = 60.0
LOST = error("node.lost", "node `b` left")


def make_attempt(run: Run) -> Attempt:
    """An attempt on one node that has done nothing yet."""
    env = {"JOBSPEC_TOKEN": run.token, "JOBSPEC_ATTEMPT": "1"}
    return Attempt(run.plan, from_environment(run.root, env), env)


def test_results_have_a_cause_with_its_findings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The thread that notes a cause stands still between cause and finding: the head waits for it."""
    run = make_run(tmp_path)
    attempt = make_attempt(run)
    find, noting, noted = attempt.record.find, threading.Event(), threading.Event()

    def slow(phase: str, finding: Finding) -> None:
        noting.set()
        noted.wait(PATIENCE_S)
        find(phase, finding)

    monkeypatch.setattr(attempt.record, "find", slow)
    loss = threading.Thread(target=attempt.stop, args=(blocked("preflight", LOST),))
    loss.start()
    assert noting.wait(PATIENCE_S)
    end = threading.Thread(target=shutdown.finish, args=(attempt,))
    end.start()
    end.join(1.0)  # what it can do without the finding, it does now
    noted.set()
    end.join(PATIENCE_S)
    loss.join(PATIENCE_S)
    results = run.results()
    assert (results["outcome"], run.rules()) == ("blocked", ["node.lost"])


def test_what_goes_wrong_after_the_verdict_is_no_part_of_it(tmp_path: Path) -> None:
    run = make_run(tmp_path)
    attempt = make_attempt(run)
    write = attempt.record.write

    def write_and_lose(cause: Any, collecting: bool = False) -> int:
        code = write(cause, collecting)
        if not collecting:
            attempt.stop(blocked("collect", LOST))
        return code

    attempt.record.write = write_and_lose  # type: ignore[method-assign]
    assert shutdown.finish(attempt) == 0
    assert (run.results()["outcome"], attempt.cause) == ("ok", None)
    assert [row for row in run.events() if row["event"] == "finding"] == []
    assert (run.attempt / "exit").read_text() == "0\n"


def test_head_that_is_killed_while_it_collects_leaves_its_results(tmp_path: Path) -> None:
    """A worker that is lost then takes the whole step with it."""
    fill = 'mkdir -p "$JOBSPEC_ATTEMPT_DIR/d"; truncate -s 20G "$JOBSPEC_ATTEMPT_DIR/d/large"'
    plan = CollectPlan(patterns=("d/**",), max_bytes=1 << 50)
    with running(tmp_path, shell(fill), collect=plan) as run:
        agent = run.agent()
        run.wait_event("collect", "start")
        results = run.results()
        for pid in (run.agent_pid(), agent.pid):
            os.kill(pid, signal.SIGKILL)
        run.finish()
        shutil.rmtree(run.root / "artifacts")
        assert run.results() == results
    assert (results["outcome"], results["collecting"]) == ("ok", True)
    assert [row["exit_code"] for row in results["commands"]] == [0]
    assert results["phases"][-1]["phase"] == "driver"


@pytest.mark.parametrize(
    ("cause", "grace", "seconds"),
    [
        (None, 300, 120.0),
        (Cause(FAILED, 1, "driver"), 300, 120.0),
        (blocked("stage", LOST), 300, 10.0),
        (Cause(FAILED, 1, "driver", (LOST,)), 300, 10.0),
        (by_signal(signal.SIGTERM), 300, 10.0),
        (by_signal(signal.SIGUSR1), 300, 60.0),
        (by_signal(signal.SIGUSR1), 30, 10.0),
    ],
)
def test_collection_ends_well_before_slurm_kills_the_step(
    cause: Cause | None, grace: int, seconds: float
) -> None:
    plan = Plan("t", "command", "c", "slurm", "srun", slurm=SlurmPlan(grace_s=grace))
    assert shutdown.collect_limit_s(plan, cause) == seconds


def test_nothing_is_started_after_a_node_was_lost(tmp_path: Path) -> None:
    """The other rank had ended well before: the command is not complete all the same."""
    first = 'echo $RANK > "$JOBSPEC_ATTEMPT_DIR/up-$RANK"; [ $RANK = 0 ] || sleep 300'
    second = 'touch "$JOBSPEC_ATTEMPT_DIR/second"'
    with running(tmp_path, shell(first, on="all"), shell(second, "more"), nodes=2) as run:
        run.agent(0)
        run.agent(1)
        run.wait_file(run.attempt / "up-1")
        log = run.attempt / "logs" / "127.0.0.2" / "agent.log"
        end = time.monotonic() + PATIENCE_S
        while "command done" not in run.wait_file(log):
            assert time.monotonic() < end, run.describe()
            time.sleep(0.02)
        os.kill(run.agent_pid(1), signal.SIGKILL)
        assert run.finish()[0] == 1
        results = run.results()
        phases = {row["phase"]: row["outcome"] for row in results["phases"]}
        assert (run.rules(), phases["driver"]) == (["node.lost"], "failed")
        assert not (run.attempt / "second").exists()


def test_signal_as_a_command_ends_well_starts_no_other(tmp_path: Path) -> None:
    run = make_run(tmp_path, shell("true"), shell("true", "more"))
    attempt = make_attempt(run)
    phases = Phases(attempt)
    ran: list[int] = []

    def command(phase: str, index: int, one: Any) -> bool:
        ran.append(index)
        attempt.stop(blocked("driver", LOST))
        return True

    phases._run_command = command  # type: ignore[method-assign]
    with pytest.raises(RunStoppedError):
        phases._run_commands("driver", run.plan.commands)
    assert ran == [0]
    attempt.record.log.close()


def test_artifacts_that_cannot_be_listed_do_not_cost_the_results(tmp_path: Path) -> None:
    text = 'rm -rf "$JOBSPEC_ARTIFACTS_DIR"; touch "$JOBSPEC_ARTIFACTS_DIR"'
    with running(tmp_path, shell(text)) as run:
        run.agent()
        code, output = run.finish()
    assert (code, run.results()["outcome"], run.rules()) == (1, "failed", ["collect.io"]), output
    assert (run.attempt / "exit").read_text() == "1\n"
    assert not run.leftovers()


def test_file_that_vanishes_is_not_listed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What a command has left running goes on writing and removing until the nodes are stopped."""
    (tmp_path / "a").write_text("a")
    (tmp_path / "b").write_text("b")
    monkeypatch.setattr(
        collect, "redact_in_place", lambda path, redactor: path.unlink() if path.name == "a" else None
    )
    rows = collect.already_there(tmp_path, [], "n", Redactor(()))
    assert [row["path"] for row in rows] == ["b"]


def test_probe_whose_environment_prints_json_is_heard(tmp_path: Path) -> None:
    """`1` is JSON too: the thread that reads must not end at it, or the head waits for the deadline."""
    (tmp_path / "sitecustomize.py").write_text("print(1, flush=True)\n")
    (tmp_path / "ray.py").write_text("raise ImportError('no such symbol')\n")
    path = os.pathsep.join([str(tmp_path), *(part for part in sys.path if part)])
    probe = Probe("127.0.0.1:1", {"a": 0}, {"PYTHONPATH": path}, tmp_path / "log")
    probe.read(lambda: None)
    assert probe.error == "ImportError: no such symbol"


def test_ray_is_stopped_though_its_logs_cannot_be_copied(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It turns its logs over while they are copied; and the disk may be full."""
    run = make_run(tmp_path)
    node = make_attempt(run).node
    logs = node.paths.ray / "session_latest" / "logs"
    logs.mkdir(parents=True)
    for name in ("gone", "kept"):
        (logs / name).write_text(name)
    opened, stopped = Path.open, threading.Event()

    def turn_over(path: Path, *rest: Any, **more: Any) -> Any:
        if path == logs / "gone":
            path.unlink()
        return opened(path, *rest, **more)

    monkeypatch.setattr(Path, "open", turn_over)
    node._ray = SimpleNamespace(stop=stopped.set, leave=lambda: None, there=True)  # type: ignore[assignment]
    assert node.handle("stop", {"keep_ray_logs": True}) == {"ended": 0, "left": []}
    assert stopped.is_set()
    assert [path.name for path in (node.paths.logs / "ray").iterdir()] == ["kept"]


def test_operation_whose_thread_comes_after_the_end_begins_nothing(tmp_path: Path) -> None:
    """It stood still since the head asked; the folders that it would make nobody removes any more."""
    run = make_run(tmp_path)
    node = make_attempt(run).node
    node.close()
    for operation in ("preflight", "ray", "command"):
        assert node.handle(operation, {}) == {"findings": []}
    assert not node.paths.scratch.exists() and not node.paths.pid_file.exists()


def test_ray_that_starts_as_the_node_stops_is_stopped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`stop` looked for it before it was there."""
    run = make_run(tmp_path, ray=RAY)
    node = make_attempt(run).node
    begun: list[RayNode] = []

    def start(argv: Any, env: Any, temp_dir: Path, log: Path) -> RayNode:
        node.stop({})
        begun.append(RayNode(["sleep", "300"], os.environ, temp_dir, log))
        return begun[0]

    monkeypatch.setattr(process, "RayNode", start)
    ports = RayPorts(*range(9))
    ray = RayStart("n", "127.0.0.1", "127.0.0.1:1", True, ports, str(node.paths.ray))
    assert node.handle("ray", {"start": ray.to_json(), "deadline_s": 1.0}) == {"findings": []}
    assert not begun[0].running() and not node.paths.ray.exists()
    assert not node.paths.pid_file.exists()


def test_phase_that_fails_ends_those_beside_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The staging of a terabyte is not waited for before an error beside it is told."""
    run = make_run(tmp_path)
    attempt = make_attempt(run)
    phases = Phases(attempt)

    def full() -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(phases, "_helpers_and_imports", full)
    monkeypatch.setattr(phases, "_stage", lambda: attempt.nodes.wait(lambda: False, PATIENCE_S, list))
    with pytest.raises(RunStoppedError):
        phases._bring_up()
    assert attempt.cause is not None
    assert [finding.rule for finding in attempt.record.findings] == ["runtime.bug"]
    assert "No space left on device" in attempt.record.findings[0].what
    attempt.record.log.close()


@pytest.mark.parametrize(
    ("written", "again"),
    [("", False), ("attempts/1/metrics/gpu-a.jsonl", False), ("attempts/1/metrics/train.jsonl", True),
     ("checkpoints/step_7/model.pt", True)],
)  # fmt: skip
def test_lost_node_leads_to_another_attempt_after_progress(tmp_path: Path, written: str, again: bool) -> None:
    """What the runtime itself samples is no progress of the command."""
    run = make_run(tmp_path, slurm=SlurmPlan(requeue_max=1))
    attempt = make_attempt(run)
    write_canary(run.attempt, "nonce")
    began = (run.attempt / "canary/head").stat().st_mtime
    if written:
        (run.root / written).parent.mkdir(parents=True, exist_ok=True)
        (run.root / written).write_text("x")
        os.utime(run.root / written, (began + 1, began + 1))
    attempt.stop(blocked("driver", replace(LOST, node="b")))
    assert shutdown.finish(attempt) == 3
    mark = run.attempt / "requeue"
    assert (mark.read_text() if mark.exists() else "") == ("b\n" if again else "")
    assert ("requeue.no-progress" in run.rules()) != again
    assert (run.attempt / "exit").read_text() == "3 b\n"


@pytest.mark.parametrize(
    ("noted", "exit_code", "said"),
    [
        ("TERM\n", 143, "SIGTERM reached the batch script"),
        ("USR1\nINT\nUSR1\n", 130, "SIGINT reached the batch script"),  # mode `upstream` notes SIGUSR1 too
        ("", 140, "SIGUSR2 reached the run's agent on `{node}`"),
    ],
)
def test_signal_is_named_as_the_batch_script_got_it(
    tmp_path: Path, noted: str, exit_code: int, said: str
) -> None:
    run = make_run(tmp_path)
    attempt = make_attempt(run)
    (run.attempt / "signal").write_text(noted)
    attempt.stop_by_signal(signal.SIGUSR2)
    assert attempt.cause is not None
    assert (attempt.cause.outcome, attempt.cause.exit_code) == ("cancelled", exit_code)
    assert [finding.what for finding in attempt.record.findings] == [said.format(node=attempt.who.name)]
