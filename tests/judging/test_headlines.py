"""First causes that no line of the program says: ends of ranks, heads, nodes and containers on a cluster."""

from __future__ import annotations

from pathlib import Path

import pytest

from jobspec.evidence.read import read_evidence
from jobspec.judging.judge import judge
from jobspec.report import FORMATS, render_report
from jobspec.verdict import AGENT_KILLED, Cause, Result, Verdict
from tests.kits.verdict_kit import PHASES, RunFolder, StandInFramework

BOTH = ("n5", "n6")
GONE = "jobspec: n6: the head is gone: silent for 8 s\n"
WORKER_FOLLOWED = "srun: error: n6: task 1: Exited with exit code 1\n"
HEAD_KILLED = "srun: error: n5: task 0: Killed\n"


def run_cut_off(root: Path, job_log: str, state: str = "FAILED", joined: bool = True) -> RunFolder:
    """A run of n5, its head, and n6 whose driver began; nothing tells how it ended but the job's log."""
    run = RunFolder(root)
    if joined:
        run.event("preflight", "progress", node="n6", data={"what": "joined", "address": "10.0.0.6"})
    for phase in PHASES[:5]:
        run.phase(phase, nodes=BOTH)
    run.event("driver", "start")
    run.log("step 1\n", node="n5")
    run.write()
    run.scheduler(state)
    (root / "job-7.log").write_text(job_log)
    return run


def judged(root: Path) -> tuple[Verdict, Cause]:
    verdict = judge(read_evidence(root), StandInFramework())
    assert verdict.first_cause is not None
    return verdict, verdict.first_cause


def test_exit_without_a_line_names_rank_and_node(tmp_path: Path) -> None:
    run = run_cut_off(tmp_path, "")
    (tmp_path / "job-7.log").write_text(
        "srun: error: n6: task 1: Exited with exit code 5\n"
        "slurmstepd: error: *** STEP 7.0 ON n5 CANCELLED AT 2026-11-20T10:00:00 ***\n"
    )
    run.finding(
        "driver", "driver.exit-code", "command `train` (rank 1) exited with 5", "n6", file="logs/n6/train.log"
    )
    run.write()
    run.results("failed", 5)
    verdict, cause = judged(tmp_path)
    assert (cause.text, cause.node) == ("command `train` (rank 1) exited with 5", "n6")
    assert verdict.result is Result.FAIL
    assert verdict.reason == "command `train` (rank 1) exited with 5 on `n6`"


@pytest.mark.parametrize(
    ("job_log", "joined", "node", "how"),
    [
        (HEAD_KILLED + WORKER_FOLLOWED, True, "n5", "Killed"),
        (GONE + WORKER_FOLLOWED + HEAD_KILLED, True, "n5", "silent for 8 s"),
        (GONE + WORKER_FOLLOWED, True, "n5", "silent for 8 s"),
        (GONE, False, "", "silent for 8 s"),
    ],
)
def test_lost_head_is_blocked_and_named(
    tmp_path: Path, job_log: str, joined: bool, node: str, how: str
) -> None:
    run_cut_off(tmp_path, job_log, joined=joined)
    verdict, cause = judged(tmp_path)
    assert (verdict.result, cause.kind, cause.node) == (Result.BLOCKED, "node.lost", node)
    assert verdict.reason == f"head node{' `n5`' if node else ''} left during `driver`: {how}"
    assert cause.file == "job-7.log"


STEP_CANCELLED = """\
srun: Job step aborted: Waiting up to 32 seconds for job step to finish.
slurmstepd-n5: error: *** STEP 7.0 ON n5 CANCELLED AT 2026-11-29T17:53:06 ***
"""


def test_cancelled_step_has_lost_no_node(tmp_path: Path) -> None:
    run_cut_off(tmp_path, STEP_CANCELLED + HEAD_KILLED, joined=True)
    verdict, cause = judged(tmp_path)
    assert (verdict.result, cause.kind, cause.node) == (Result.BLOCKED, "CANCELLED", "")
    assert verdict.reason.startswith("somebody cancelled the job's step (`scancel JOB.0`)")


def test_killed_batch_script_is_no_cancellation(tmp_path: Path) -> None:
    """Slurm ends the agents by the same SIGTERM; the script had no exit code of theirs to hand on."""
    run = run_cut_off(tmp_path, "")
    run.results("cancelled", 143)
    (tmp_path / "scheduler.json").write_text('{"state": "FAILED", "reason": "", "exit_code": 137}')
    verdict, cause = judged(tmp_path)
    assert (verdict.result, cause.kind) == (Result.BLOCKED, "BATCH_SCRIPT_KILLED")
    assert verdict.reason == "the batch script was killed (SIGKILL), so Slurm ended the job"
    (tmp_path / "scheduler.json").write_text('{"state": "FAILED", "reason": "", "exit_code": 15}')
    assert judged(tmp_path)[1].kind == "CANCELLED"


NOTHING_SHOWS = (
    "jobspec's agent was killed (137): by the command, by lack of memory, or from outside; "
    "nothing shows which"
)


def test_job_that_ends_by_a_kill_clears_nothing(tmp_path: Path) -> None:
    """No other node tells of it: `kill -9 $PPID` in the command ends a run just so."""
    run_cut_off(tmp_path, "")
    (tmp_path / "scheduler.json").write_text('{"state": "FAILED", "reason": "", "exit_code": 137}')
    verdict, cause = judged(tmp_path)
    assert (verdict.result, cause.kind, cause.node) == (Result.BLOCKED, AGENT_KILLED, "n5")
    assert verdict.reason == NOTHING_SHOWS
    for fmt in FORMATS:
        report = render_report(verdict, read_evidence(tmp_path), fmt)
        assert "not evidence" not in report and "environment fix" not in report


def test_killed_agent_of_the_only_node_is_no_lost_node(tmp_path: Path) -> None:
    run = RunFolder(tmp_path)
    for phase in PHASES[:5]:
        run.phase(phase, nodes=("n5",))
    run.event("driver", "start")
    run.write()
    run.scheduler("FAILED")
    (tmp_path / "job-7.log").write_text(HEAD_KILLED)
    verdict, cause = judged(tmp_path)
    assert (verdict.result, cause.kind, cause.node, cause.file) == (
        Result.BLOCKED,
        AGENT_KILLED,
        "n5",
        "job-7.log",
    )
    assert verdict.reason == NOTHING_SHOWS


def test_head_that_is_lost_while_files_are_collected_is_named(tmp_path: Path) -> None:
    run = run_cut_off(tmp_path, GONE)
    run.phase("driver", nodes=BOTH)
    run.event("collect", "start")
    run.write()
    run.results(collecting=True)
    _, cause = judged(tmp_path)
    assert cause.text == "head node `n5` left during `collect`: silent for 8 s"


def test_log_of_the_head_explains_its_loss(tmp_path: Path) -> None:
    run = run_cut_off(tmp_path, HEAD_KILLED)
    run.log("NVRM: Xid (PCI:0000:3b:00): 79, GPU has fallen off the bus\n", "dmesg.log", "n5")
    _, cause = judged(tmp_path)
    assert cause.signature == "gpu.bad-node"


@pytest.mark.parametrize("state", ["TIMEOUT", "CANCELLED by 1000", "OUT_OF_MEMORY"])
def test_kill_by_the_scheduler_is_no_loss_of_the_head(tmp_path: Path, state: str) -> None:
    """Slurm kills all tasks, and a worker may see the head go first."""
    run_cut_off(tmp_path, GONE + HEAD_KILLED, state)
    _, cause = judged(tmp_path)
    assert cause.kind == state.split(" ")[0]


@pytest.mark.parametrize("state", ["CANCELLED by 1000", "FAILED"])
def test_too_many_restarts_are_no_cancellation(tmp_path: Path, state: str) -> None:
    """The signal of the last requeue is what the last attempt saw; the job's log is read with the first."""
    run = run_cut_off(tmp_path, "jobspec: restarted 4 times, allowed are 3: stopping\n", state)
    run.results("timeout", 124)
    last = run.next_attempt()
    last.phase("preflight")
    last.write()
    last.results("cancelled", 143)
    verdict, cause = judged(tmp_path)
    assert (verdict.result, cause.signature) == (Result.BLOCKED, "slurm.requeue-limit")
    assert cause.text == "jobspec: restarted 4 times, allowed are 3: stopping"
    assert verdict.reason == "the job was started again more often than `launch.requeue.max_attempts` allows"


UNAUTHORIZED = (
    "pyxis: importing docker image: nvcr.io/nvidia/nemo-rl:v0.4.0\n"
    "slurmstepd: error: pyxis: child 4711 failed with error code: 1\n"
    "slurmstepd: error: pyxis: failed to import docker image\n"
    "slurmstepd: error: pyxis: printing enroot log file:\n"
    "slurmstepd: error: pyxis: [ERROR] URL https://nvcr.io/proxy_auth returned error code: 401 Unauthorized\n"
    "slurmstepd: error: spank: required plugin spank_pyxis.so: task_init() failed with rc=-1\n"
    "srun: error: n5: task 0: Exited with exit code 1\n"
)


def test_container_that_did_not_start_has_its_cause(tmp_path: Path) -> None:
    run = RunFolder(tmp_path)
    run.write()
    for path in (run.folder / "events.jsonl", run.folder, run.folder.parent):
        path.unlink() if path.is_file() else path.rmdir()
    run.scheduler("FAILED", "NonZeroExitCode")
    (tmp_path / "job-7.log").write_text(UNAUTHORIZED)
    verdict, cause = judged(tmp_path)
    assert verdict.result is Result.BLOCKED
    assert "401 Unauthorized" in cause.text and (cause.file, cause.line) == ("job-7.log", 5)
    assert verdict.reason.endswith(cause.why)


def test_failed_node_that_never_joined_is_in_the_headline(tmp_path: Path) -> None:
    run = RunFolder(tmp_path)
    run.event("preflight", "start")
    what = "node `n6` had not connected when the run was ended"
    run.finding("preflight", "node.absent", what, "n6", severity="warning")
    run.write()
    run.results("cancelled", 143, commands=[])
    run.scheduler("NODE_FAIL")
    _, cause = judged(tmp_path)
    assert (cause.kind, cause.node, cause.text) == ("NODE_FAIL", "n6", f"NODE_FAIL: {what}")


def test_of_two_nodes_that_never_joined_neither_is_blamed_alone(tmp_path: Path) -> None:
    run = RunFolder(tmp_path)
    run.event("preflight", "start")
    for node in BOTH:
        what = f"node `{node}` had not connected when the run was ended"
        run.finding("preflight", "node.absent", what, node, severity="warning")
    run.write()
    run.results("cancelled", 143, commands=[])
    run.scheduler("NODE_FAIL")
    _, cause = judged(tmp_path)
    assert cause.node == "" and all(f"`{node}`" in cause.text for node in BOTH)
