"""A sweep in one allocation on a real cluster: one job, the points in turn, each with its own verdict."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.slurm.lab import Lab, await_true

pytestmark = [pytest.mark.slurm]

POINT = """\
[ "$NODE_RANK" = 0 ] || exit 0
echo "$SPEED $SLURM_JOB_ID $(hostname)" >> "$JOBSPEC_RUN_DIR/../../ran"
[ "$SPEED" != 0 ] || { echo 'torch.OutOfMemoryError: CUDA out of memory. Tried to use 2 GiB' >&2; exit 7; }
for step in 1 2 3; do
  echo "{\\"step\\": $step, \\"tokens_per_s\\": $SPEED}" >> "$JOBSPEC_METRICS_DIR/metrics.jsonl"
done
"""


def test_failing_point_stops_no_other_and_the_table_tells_each_verdict(lab: Lab, tmp_shared: Path) -> None:
    spec = lab.command_spec(
        "in-turn",
        ["bash", "-c", POINT],
        nodes=2,
        sweep={"grid": {"container.env.SPEED": ["10", "0", "30", "5"]}, "mode": "one_allocation"},
        metrics={"require": ["min(tokens_per_s) > 6"]},
    )
    made = lab.submit(spec)
    run_dir = Path(made["run_dir"])
    assert lab.await_end(made["job_id"]) == ("FAILED", "7:0")
    ran = [line.split() for line in (run_dir / "ran").read_text().splitlines()]
    assert [row[0] for row in ran] == ["10", "0", "30", "5"]
    assert {(job, node) for _, job, node in ran} == {(made["job_id"], ran[0][2])}
    codes = [(run_dir / f"points/{point}/job-exit").read_text().strip() for point in range(4)]
    assert codes == ["0", "7", "0", "0"]
    done = lab.jobspec("report", made["run_id"], "--format", "json")
    table = json.loads(done.stdout)
    rows = [(row["status"], row["result"], row["tokens_per_s"]) for row in table["points"]]
    assert rows == [
        ("OK", "Pass", 10.0),
        ("OOM", "Blocked", None),
        ("OK", "Pass", 30.0),
        ("FAIL", "Fail", 5.0),
    ]
    assert (done.returncode, table["best"]) == (1, 2)
    (status,) = json.loads(lab.jobspec("status", made["run_id"], "--json").stdout)
    assert status["state"] == "FAILED"
    assert lab.submit(spec)["job_id"] == "", "every point has a verdict of its own: nothing is run again"


def test_cancel_ends_the_point_that_runs_and_starts_no_other(lab: Lab, tmp_shared: Path) -> None:
    spec = lab.command_spec(
        "in-turn-cancel",
        ["bash", "-c", 'echo "$POINT" >> "$JOBSPEC_RUN_DIR/../../ran"; exec sleep 300'],
        sweep={"grid": {"container.env.POINT": ["a", "b"]}, "mode": "one_allocation"},
    )
    made = lab.submit(spec)
    ran = Path(made["run_dir"]) / "ran"
    await_true(ran.exists, "the first point", 60)
    assert lab.jobspec("cancel", made["run_id"]).returncode == 0
    assert lab.await_end(made["job_id"])[0] == "CANCELLED"
    assert ran.read_text() == "a\n"
    table = json.loads(lab.jobspec("report", made["run_id"], "--format", "json").stdout)
    assert [row["status"] for row in table["points"]] == ["BLOCKED", "NOT RUN"]
