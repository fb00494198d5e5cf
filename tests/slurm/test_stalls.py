"""A run that stands still on a real cluster: who is the cause is named, and it goes on elsewhere."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from tests.slurm.lab import Lab, await_true

pytestmark = [pytest.mark.slurm]

PROGRAM = """
import os, pathlib, signal, time
for step in range(1, 4):
    print("step", step, flush=True)
    time.sleep(0.2)
pathlib.Path(os.environ["JOBSPEC_CHECKPOINT_DIR"], "step").write_text("3")
node = os.environ["SLURMD_NODENAME"]
if os.environ["JOBSPEC_ATTEMPT"] == "1":
    if node == "n2":
        os.kill(os.getpid(), signal.SIGSTOP)
    print("waits for the others", flush=True)
    time.sleep(600)
print("attempt", os.environ["JOBSPEC_ATTEMPT"], "on", node, flush=True)
"""


def test_a_stalled_run_goes_on_without_the_node_that_is_the_cause(lab: Lab) -> None:
    spec = lab.command_spec(
        "stalled",
        ["python3", "-c", PROGRAM],
        nodes=2,
        launch={"requeue": {"max_attempts": 2}},
        watch={"stall": {"after": "8s", "action": "requeue"}},
    )
    run = lab.submit(spec)
    assert lab.await_end(run["job_id"], timeout=240) == ("COMPLETED", "0:0")
    first = lab.results(run["run_dir"], 1)["findings"][0]
    assert (first["rule"], first["node"]) == ("stall.outside", "n2")
    assert "is stopped (state T)" in first["what"]
    nodes = [row["name"] for row in lab.results(run["run_dir"], 2)["nodes"]]
    assert len(nodes) == 2
    assert "n2" not in nodes
    code, report = lab.report(run["run_id"])
    assert code == 0
    assert [row["outcome"] for row in report["attempts"]] == ["blocked", "ok"]


def test_a_dump_of_a_run_on_two_nodes(lab: Lab) -> None:
    run = lab.submit(lab.command_spec("dumped", ["python3", "-c", PROGRAM], nodes=2))
    attempt = Path(run["run_dir"]) / "attempts/1"

    def stands() -> bool:
        return any("waits for" in path.read_text() for path in attempt.glob("logs/*/command-*.log"))

    await_true(stands, "the run to stand", 90)
    time.sleep(2)  # the other node's log is seen at the end alone
    done = lab.jobspec("dump", run["run_id"], "--apart", "1")
    assert done.returncode == 0, done.stdout + done.stderr
    first = done.stdout.splitlines()[0]
    assert first.startswith("what: rank 1 on `n2`, pid ")
    assert "is stopped (state T)" in first
    assert "processes on 2 of 2 nodes" in done.stdout
    assert lab.jobspec("cancel", run["run_id"]).returncode == 0
