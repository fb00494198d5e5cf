"""Watching and touching a run: status, logs, attach, exec, cancel."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.slurm.lab import Lab, await_true, end

pytestmark = [pytest.mark.slurm]

COUNT = "for i in $(seq 600); do echo tick $i; sleep 0.5; done"


@pytest.fixture
def running(lab: Lab) -> dict[str, str]:
    """A run on two nodes that prints a line twice a second."""
    spec = lab.command_spec("count", ["bash", "-c", COUNT], nodes=2, mode="srun")
    run = lab.submit(spec)
    lab.await_phase(run["run_dir"], "driver")
    return run


def test_status_says_where_a_run_is(lab: Lab, running: dict[str, str]) -> None:
    status = lab.status(running["run_id"])
    assert status["state"] == "RUNNING"
    assert status["job_id"] == running["job_id"]
    assert status["scheduler"]["nodes"] == "n[1-2]"
    text = lab.jobspec("status").stdout
    assert running["run_id"] in text
    assert "RUNNING" in text


def test_logs_follow_until_the_end(lab: Lab, running: dict[str, str]) -> None:
    follower = lab.popen("logs", "-f", running["run_id"])
    try:
        lines: list[str] = []
        assert follower.stdout is not None
        while "tick 5" not in lines:
            line = follower.stdout.readline()
            assert line, "logs -f ended although the job runs"
            lines.append(line.strip())
        cancelled = lab.jobspec("cancel", running["run_id"])
        assert cancelled.returncode == 0, cancelled.stderr
        assert follower.wait(timeout=60) == 0, "it ends by itself when the job has ended"
    finally:
        if follower.poll() is None:
            end(follower)


@pytest.mark.parametrize("runtime", ["none", "bubblewrap", "pyxis"])
def test_exec_runs_in_the_job(lab: Lab, need_runtime, runtime: str) -> None:  # type: ignore[no-untyped-def]
    if runtime != "none":
        need_runtime(runtime)
    spec = lab.command_spec("inside", ["bash", "-c", COUNT], nodes=2, runtime=runtime)
    run = lab.submit(spec, cluster="lab" if runtime == "none" else f"lab-{runtime}")
    lab.await_phase(run["run_dir"], "driver")
    show = 'hostname; echo "$JOBSPEC_RUN_DIR"; test -e /etc/slurm/slurm.conf && echo bare || echo contained'
    done = lab.jobspec("exec", run["run_id"], "--", "bash", "-c", show)
    assert done.returncode == 0, done.stdout + done.stderr
    place = "bare" if runtime == "none" else "contained"
    assert done.stdout.split() == ["n1", run["run_dir"], place]
    other = lab.jobspec("exec", run["run_id"], "--node", "n2", "--", "bash", "-c", "hostname; exit 5")
    assert (other.stdout.strip(), other.returncode) == ("n2", 5), other.stderr


def test_attach_opens_a_shell_on_the_head(lab: Lab, running: dict[str, str]) -> None:
    """`attach` without a terminal reads commands from standard input, as any shell does."""
    command = lab.cluster.command(
        "ctl", ["sh", "-c", f"echo 'hostname; exit 4' | jobspec attach {running['run_id']}"]
    )
    import subprocess

    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert (done.stdout.strip(), done.returncode) == ("n1", 4), done.stderr


def test_attach_script_works_by_hand(lab: Lab, running: dict[str, str]) -> None:
    script = Path(running["run_dir"]) / "attach.sh"
    done = lab.cluster.run("ctl", ["bash", str(script), "-n", "n2", "hostname"], timeout=60)
    assert done.stdout.strip() == "n2", done.stderr


def test_cancel_ends_the_job_and_says_so(lab: Lab, running: dict[str, str]) -> None:
    done = lab.jobspec("cancel", running["run_id"])
    assert done.returncode == 0, done.stderr
    assert lab.await_end(running["job_id"], timeout=60)[0] == "CANCELLED"
    assert lab.status(running["run_id"])["state"] == "CANCELLED"
    results = lab.results(running["run_dir"])
    assert results["outcome"] == "cancelled", "the agent wrote its result before it ended"
    code, report = lab.report(running["run_id"])
    assert code != 0
    assert "cancel" in str(report).lower()


def test_exec_on_an_ended_run_is_a_finding(lab: Lab) -> None:
    spec = lab.command_spec("brief", ["true"])
    assert lab.jobspec("run", spec).returncode == 0
    done = lab.jobspec("exec", "last", "--", "true")
    assert done.returncode == 2
    assert "COMPLETED" in done.stderr
    assert "Traceback" not in done.stderr


def test_pending_run_says_what_it_waits_for(lab: Lab) -> None:
    with lab.occupied():
        run = lab.submit(lab.command_spec("waiting", ["true"]))
        status = lab.await_state(run["run_id"], "PENDING")
        await_true(
            lambda: lab.status(run["run_id"])["scheduler"]["reason"] in ("Resources", "Priority"),
            "a reason",
            60,
        )
        assert not status["final"]
        done = lab.jobspec("logs", run["run_id"])
        assert done.returncode != 0
        assert "Traceback" not in done.stderr
    assert lab.await_end(run["job_id"])[0] == "COMPLETED"
