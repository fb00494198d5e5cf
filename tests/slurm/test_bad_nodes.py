"""A node that evidence names as broken, on a real Slurm: the next attempt and the next runs keep off it."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

import pytest

from tests.slurm.lab import Lab

pytestmark = pytest.mark.slurm

ECC = "RuntimeError: CUDA error: uncorrectable ECC error encountered"
BROKEN = f"""\
if [ "$JOBSPEC_ATTEMPT" = 1 ]; then
  if [ "$(uname -n)" = n2 ]; then sleep 1; echo "{ECC}" >&2; exit 1; fi
  sleep 600
fi
echo "attempt $JOBSPEC_ATTEMPT"
"""


@pytest.fixture
def listed(lab: Lab) -> Iterator[Lab]:
    yield lab
    lab.jobspec("nodes", "remove", "n[1-4]")


def nodes(lab: Lab) -> list[dict[str, Any]]:
    done = lab.jobspec("nodes", "--json", "--cluster", "lab")
    assert done.returncode == 0, done.stderr
    found: list[dict[str, Any]] = json.loads(done.stdout)
    return found


def excluded(lab: Lab, job_id: str) -> str:
    return re.findall(r"ExcNodeList=(\S+)", lab.slurm("scontrol", "show", "job", "-o", job_id))[0]


def test_broken_node_is_left_out_of_the_next_attempt_and_of_the_next_runs(listed: Lab) -> None:
    """Without a checkpoint or a metric: without that node the next attempt goes another way."""
    lab = listed
    again = {"requeue": {"max_attempts": 2}}
    spec = lab.command_spec("broken", ["bash", "-c", BROKEN], nodes=2, launch=again)
    run = lab.submit(spec)
    assert lab.await_end(run["job_id"], timeout=240) == ("COMPLETED", "0:0")
    assert [row["name"] for row in lab.results(run["run_dir"])["nodes"]] == ["n1", "n2"]
    assert "n2" not in [row["name"] for row in lab.results(run["run_dir"], 2)["nodes"]]
    code, report = lab.report(run["run_id"])
    assert (code, report["result"]) == (0, "Pass")
    (told,) = [found for found in report["findings"] if found["rule"] == "node.named"]
    assert (told["node"], told["file"], told["line"]) == ("n2", "attempts/1/logs/n2/command-1.log", 1)
    assert told["why"] == f"{ECC}; the next attempt was asked for without it"
    (entry,) = nodes(lab)
    assert (entry["node"], entry["run"], entry["attempt"]) == ("n2", run["run_id"], 1)
    assert (entry["text"], entry["line"]) == (ECC, 1)

    after = lab.submit(lab.command_spec("after", ["true"], nodes=2))
    assert excluded(lab, after["job_id"]) == "n2"
    assert lab.await_end(after["job_id"]) == ("COMPLETED", "0:0")
    whole = lab.command_spec("whole-cluster", ["true"], nodes=4)
    refused = lab.jobspec("submit", whole)
    assert refused.returncode == 2, refused.stdout
    assert "error[nodes.too-many-excluded]" in refused.stderr
    assert "excluded are `n2`" in refused.stderr
    assert "jobspec nodes remove n2" in refused.stderr
    assert lab.jobspec("submit", whole, "--dry-run", "--set", "slurm.avoid_listed=false").returncode == 0

    assert lab.jobspec("nodes", "remove", "n2").returncode == 0
    lab.report(run["run_id"])  # which has told of it once
    assert nodes(lab) == []
    last = lab.submit(whole)
    assert lab.await_end(last["job_id"]) == ("COMPLETED", "0:0")


def test_broken_node_that_no_other_replaces_is_not_tried_again(listed: Lab) -> None:
    lab = listed
    again = {"requeue": {"max_attempts": 3}}
    run = lab.submit(lab.command_spec("alone", ["bash", "-c", BROKEN], nodes=4, launch=again))
    assert lab.await_end(run["job_id"], timeout=240) == ("FAILED", "1:0")
    log = next(lab.runs.glob(f"alone/{run['run_id']}/job-*.log")).read_text()
    assert "jobspec: another attempt might get n2 again: not requeued" in log
    assert [entry["node"] for entry in nodes(lab)] == ["n2"]
