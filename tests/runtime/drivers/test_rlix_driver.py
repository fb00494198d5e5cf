"""What ends a run of several pipelines while RLix's driver waits for one, and what never does."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from jobspec.runtime.drivers.rlix import driver as rlix_driver
from jobspec.runtime.drivers.rlix import probe
from jobspec.runtime.drivers.rlix.driver import SETTLE_S, Admission, Run, places
from tests.kits.rlix_node_kit import driver

ONE, TWO = "ft_0123456789ab", "ft_ba9876543210"
START = 1795869564.0
ACTOR = "\x1b[36m(NemoRLFullFinetunePipeline pid=411)\x1b[0m "
OTHER = "\x1b[36m(NemoRLFullFinetunePipeline pid=412)\x1b[0m "
WAIT = "step-boundary admission: wait failed"
THEN = "falling back to admit_delay_s=900.0s"
DIED = f"{WAIT} (ActorDiedError('The actor died unexpectedly.\\n\\tpid: 3')); {THEN}"
SLOW = f"{WAIT} (GetTimeoutError('Get timed out')); {THEN}"


def begin(admission: Admission, which: str, now: float) -> None:
    admission.line(f"pair-init barrier armed on {which} before run.remote()", now)
    admission.line(
        f"step-boundary admission: waiting for {which} first after_training (timeout=900.0s)", now + 0.1
    )


@pytest.fixture
def first() -> Admission:
    """The driver waits for the first of two pipelines."""
    admission = Admission(["one", "two"])
    begin(admission, ONE, START)
    admission.line(
        f"{ACTOR}[RLIX_HOOK {ONE}] before_training step=0 - requesting actor_train GPUs", START + 60
    )
    return admission


def cause(admission: Admission, now: float) -> tuple[str, str] | None:
    assert admission.broken(now) is None, "told before it can be certain"
    found = admission.broken(now + SETTLE_S)
    return (found.name, found.cause) if found is not None else None


def test_pipeline_that_raised_is_broken(first: Admission) -> None:
    first.ended([Run(START + 0.05, "RuntimeError: no CUDA", "Traceback ...")], START + 90)
    assert cause(first, START + 90) == ("one", "RuntimeError: no CUDA")
    found = first.broken(START + 100)
    assert found is not None and found.traceback == "Traceback ..."


def test_pipeline_whose_loop_broke_is_broken_and_its_error_is_the_cause(first: Admission) -> None:
    """NeMo-RL prints it and returns; RLix's own cleaning up may then wait for GPUs."""
    first.line(f"{ACTOR}❌ Error in async loop: Metric accuracy not found", START + 90)
    assert cause(first, START + 90) == ("one", "Metric accuracy not found")
    first.ended([Run(START)], START + 97)
    assert first.broken(START + 99) == rlix_driver.Broken("one", "Metric accuracy not found")


def test_pipeline_that_returned_without_a_step_is_broken(first: Admission) -> None:
    first.ended([Run(START)], START + 90)
    assert cause(first, START + 90) == ("one", "its run() returned before its first train step")


def test_actor_that_died_is_broken(first: Admission) -> None:
    first.line(DIED, START + 90)
    found = cause(first, START + 90)
    assert found is not None and found[1].startswith("ActorDiedError('The actor died unexpectedly.")


@pytest.mark.parametrize(
    "line",
    [
        f"{ACTOR}the answer was: Error in async loop: x",  # what a model wrote
        "Error in async loop: x",  # of the driver, who has none
        f"{OTHER}❌ Error in async loop: x",  # of an actor that is not known to be this pipeline
        f"{ACTOR}Traceback (most recent call last):",
        f"{ACTOR}RuntimeError: retried, and worked",
        SLOW,
        "",
    ],
)
def test_slow_pipeline_is_never_called_broken(first: Admission, line: str) -> None:
    first.line(line, START + 90)
    first.ended([], START + 91)
    assert first.broken(START + 30 * 86400) is None


def test_first_step_that_is_told_of_at_the_same_moment_counts(first: Admission) -> None:
    first.ended([Run(START)], START + 90)
    first.line(f"step-boundary admission: {ONE} reached first after_training (signaled=True)", START + 91)
    assert first.broken(START + 1000) is None


def test_earlier_pipeline_that_has_ended_is_not_the_one_waited_for() -> None:
    admission = Admission(["one", "two", "three"])
    begin(admission, ONE, START)
    admission.line(f"{ACTOR}[RLIX_PPL {ONE}] _expand_workers DONE", START + 10)
    admission.line(f"step-boundary admission: {ONE} reached first after_training (signaled=True)", START + 20)
    begin(admission, TWO, START + 30)
    admission.line(f"{ACTOR}❌ Error in async loop: of the first", START + 40)
    admission.ended([Run(START, "ValueError: of the first")], START + 40)
    assert admission.broken(START + 900) is None
    admission.ended([Run(START, "ValueError: of the first"), Run(START + 30, "OSError: y")], START + 950)
    assert cause(admission, START + 950) == ("two", "OSError: y")


def test_nothing_is_waited_for_after_the_last_admission(first: Admission) -> None:
    first.line(f"step-boundary admission: {ONE} reached first after_training (signaled=True)", START + 90)
    first.line(f"{ACTOR}❌ Error in async loop: late", START + 95)
    first.ended([Run(START, "RuntimeError: late")], START + 96)
    assert first.broken(START + 1000) is None


RAISED = {"type": "<class 'torch.OutOfMemoryError'>", "value": "CUDA error:\nno memory", "traceback": "Trace"}
OTHERS = {"type": "<class 'KeyError'>", "value": "'other'", "traceback": "of a call beside it"}


def event(cat: str, start: float, seconds: float, tid: str = "worker:a", **args: str) -> dict[str, object]:
    """As `ray.timeline()` of Ray 2.60 has it, in microseconds."""
    return {"cat": cat, "tid": tid, "ts": start * 1e6, "dur": seconds * 1e6, "args": args}


def test_ended_runs_are_those_of_pipelines_with_what_they_raised() -> None:
    events = [
        event("task::NemoRLFullFinetunePipeline.run", 50.0, 1.5, "worker:b"),
        event("task:execute", 50.01, 1.4, "worker:b"),
        event("task:execute", 50.2, 0.5, "worker:b", **OTHERS),
        event("task::NemoRLFullFinetunePipeline.resize_infer", 50.19, 0.6, "worker:b"),
        event("task::NemoRLFullFinetunePipeline.run", 10.0, 1.5),
        event("task:execute", 10.01, 1.4, **RAISED),
        event("task:execute", 10.2, 0.5, **OTHERS),
        event("task::Orchestrator.run", 5.0, 1.0, "worker:c"),
        event("task::rlix:pipeline:x:NemoRLFullFinetunePipeline.__init__", 9.0, 0.5),
    ]
    assert probe.ended(events) == [
        {"start": 10.0, "error": "OutOfMemoryError: CUDA error: no memory", "traceback": "Trace"},
        {"start": 50.0, "error": "", "traceback": ""},
    ]


def test_folders_are_found_in_the_environment_of_this_attempts_processes_alone(tmp_path: Path) -> None:
    own = {"JOBSPEC_RUN_DIR": "/runs/a", "JOBSPEC_ATTEMPT": "1"}
    for pid, run, folder in (("11", "a", ONE), ("12", "b", TWO), ("13", "a", "shared"), ("14", "ab", TWO)):
        (tmp_path / pid).mkdir()
        rows = [
            f"JOBSPEC_RUN_DIR=/runs/{run}",
            "JOBSPEC_ATTEMPT=1",
            f"VLLM_CACHE_ROOT=/tmp/rlix/{folder}/01/vllm",
        ]
        (tmp_path / pid / "environ").write_text("\0".join(rows) + "\0")
    assert set(places(own, tmp_path)) == {ONE}


SAYS = f"""\
echo "pair-init barrier armed on {ONE} before run.remote()"
echo "step-boundary admission: waiting for {ONE} first after_training (timeout=900.0s)"
echo "(P pid=4) [RLIX_HOOK {ONE}] before_training step=0"
echo "(P pid=4) ❌ Error in async loop: no such metric" >&2
"""


def drive(tmp_path: Path, script: str) -> subprocess.Popen[str]:
    return driver(tmp_path, script, {"RAY_ADDRESS": "127.0.0.1:1"})  # no Ray answers


def test_driver_that_waits_for_a_broken_pipeline_is_ended(tmp_path: Path) -> None:
    process = drive(tmp_path, SAYS + "exec sleep 300")
    out, _ = process.communicate(timeout=120)
    assert process.returncode == 1
    assert out.startswith("pair-init barrier armed on ")
    said = "jobspec: pipeline `one` broke before its first train step: no such metric"
    assert said in out.splitlines()
    assert (tmp_path / "made").read_text().split() == [ONE]


def test_driver_that_ends_by_itself_keeps_its_exit_code_and_output(tmp_path: Path) -> None:
    process = drive(
        tmp_path, f"echo begin; echo 'pipeline {TWO} run() returned successfully'; printf end; exit 7"
    )
    out, _ = process.communicate(timeout=60)
    assert (process.returncode, out.splitlines()[0], out.splitlines()[-1]) == (7, "begin", "end")
    assert (tmp_path / "made").read_text().split() == [TWO]


def test_probe_that_is_slow_to_die_does_not_cost_the_exit_code(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a loaded node SIGKILL may take longer than it is waited for."""
    followed = rlix_driver.Driver(["sh", "-c", "exit 7"], ["a"], tmp_path / "note")
    slow = subprocess.Popen(["sleep", "300"])
    kill = slow.kill
    monkeypatch.setattr(slow, "kill", lambda: None)
    monkeypatch.setattr(rlix_driver.procs, "KILL_S", 0.1)
    followed._probe = slow
    followed.child.wait()
    try:
        assert followed.follow() == 7
    finally:
        kill()
        slow.wait()


def test_driver_gets_the_signal_and_time_to_end(tmp_path: Path) -> None:
    process = drive(tmp_path, "trap 'echo saved; exit 9' TERM; echo up; while :; do sleep 0.1; done")
    assert process.stdout is not None and process.stdout.readline() == "up\n"
    process.send_signal(signal.SIGTERM)
    out, _ = process.communicate(timeout=60)
    assert (process.returncode, out) == (9, "saved\n")


def test_probe_without_a_ray_says_so_and_ends(tmp_path: Path) -> None:
    """In a container whose interpreter has no Ray the logs alone tell."""
    (tmp_path / "ray.py").write_text("raise ImportError('no ray here')\n")
    env = {**os.environ, "PYTHONPATH": str(tmp_path)}
    argv = [sys.executable, "-m", "jobspec.runtime.drivers.rlix.probe"]
    done = subprocess.run(argv, env=env, capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, json.loads(done.stdout)) == (1, {"note": "ImportError: no ray here"})
