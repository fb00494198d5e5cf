"""The reports of a run that nobody watches: there when its job has left the queue, before any command."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.slurm.lab import Lab, await_true

pytestmark = [pytest.mark.slurm]

SCORES = """\
for step in 1 2; do
  echo "{\\"step\\": $step, \\"score\\": $SCORE}" >> "$JOBSPEC_METRICS_DIR/metrics.jsonl"
done
"""
HIGH = {"require": ["min(score) > 6"]}


def await_empty_queue(lab: Lab) -> None:
    await_true(lambda: not lab.slurm("squeue", "-h"), "an empty queue", 180, lambda: lab.slurm("squeue"))


def written(run_dir: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((Path(run_dir) / "report.json").read_text())
    return found


@pytest.mark.parametrize(("runtime", "score", "result"), [("none", 9, "Pass"), ("bubblewrap", 3, "Fail")])
def test_the_job_leaves_its_verdict(lab: Lab, need_runtime, runtime: str, score: int, result: str) -> None:  # type: ignore[no-untyped-def]
    if runtime != "none":
        need_runtime(runtime)
    spec = lab.command_spec(
        "unwatched", ["bash", "-c", f"SCORE={score}; {SCORES}"], nodes=2, runtime=runtime, metrics=HIGH
    )
    run = lab.submit(spec, cluster="lab" if runtime == "none" else f"lab-{runtime}")
    await_empty_queue(lab)
    assert not (Path(run["run_dir"]) / "scheduler.json").exists(), "no command has asked since"
    report = written(run["run_dir"])
    assert (report["result"], report["run"]["scheduler"]["state"]) == (result, "")
    assert any("how Slurm saw the job end is not recorded" in line for line in report["limitations"])
    assert lab.await_end(run["job_id"]) == ("COMPLETED", "0:0")  # accounting comes late
    assert lab.status(run["run_id"])["verdict"] == result
    assert written(run["run_dir"])["run"]["scheduler"]["state"] == "COMPLETED"


def test_a_failed_job_keeps_its_exit_code_and_a_cancelled_one_its_state(lab: Lab) -> None:
    failed = lab.submit(lab.command_spec("unwatched-fails", ["bash", "-c", "exit 7"]))
    slept = lab.submit(lab.command_spec("unwatched-sleeps", ["sleep", "300"]))
    lab.await_phase(slept["run_dir"], "driver")
    lab.slurm("scancel", slept["job_id"])
    await_empty_queue(lab)
    assert lab.await_end(failed["job_id"]) == ("FAILED", "7:0")
    assert written(failed["run_dir"])["result"] == "Fail"
    assert lab.await_end(slept["job_id"])[0] == "CANCELLED"
    assert lab.status(slept["run_id"])["verdict"] == "Blocked"


@pytest.mark.parametrize("mode", ["array", "one_allocation"])
def test_a_sweep_leaves_its_table(lab: Lab, mode: str) -> None:
    grid = {"grid": {"container.env.SCORE": ["9", "3"]}, "mode": mode}
    spec = lab.command_spec(f"unwatched-{mode}", ["bash", "-c", SCORES], metrics=HIGH, sweep=grid)
    run = lab.submit(spec)
    await_empty_queue(lab)
    assert [point["result"] for point in written(run["run_dir"])["points"]] == ["Pass", "Fail"]
    assert [written(f"{run['run_dir']}/points/{point}")["result"] for point in (0, 1)] == ["Pass", "Fail"]


def test_nodes_that_do_not_see_the_installation_leave_the_reports_to_the_next_status(lab: Lab) -> None:
    """An installation below the login node's own /tmp."""
    link = ["ln", "-s", str(lab.python.parents[1]), "/tmp/jobspec-of-ctl"]
    assert lab.cluster.run("ctl", link).returncode == 0
    spec = lab.command_spec("unwatched-bare", ["true"])
    done = lab.cluster.run(
        "ctl",
        ["/tmp/jobspec-of-ctl/bin/python", "-m", "jobspec.cli", "submit", str(spec), "--json"],
        env={"JOBSPEC_CLUSTER": "lab"},
    )
    assert done.returncode == 0, done.stderr
    run = json.loads(done.stdout)
    assert "python=/tmp/jobspec-of-ctl/bin/python" in (Path(run["run_dir"]) / "job.sbatch").read_text()
    await_empty_queue(lab)
    assert lab.await_end(run["job_id"]) == ("COMPLETED", "0:0")  # accounting comes late
    assert not [path.name for path in Path(run["run_dir"]).glob("report*")]
    assert lab.status(run["run_id"])["verdict"] == "Pass"
    assert written(run["run_dir"])["result"] == "Pass"
