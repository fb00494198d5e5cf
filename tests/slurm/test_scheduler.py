"""The Slurm launcher against a real controller: lost answers, refusals, scheduler calls, profiles."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.slurm.lab import Lab

pytestmark = [pytest.mark.slurm]


def test_submitting_a_rendered_folder_twice_is_one_job(lab: Lab, tmp_shared: Path) -> None:
    spec = lab.command_spec("once", ["sleep", "60"])
    rendered = lab.jobspec("render", spec, "--out", tmp_shared / "run")
    assert rendered.returncode == 0, rendered.stderr
    first, second = (json.loads(lab.jobspec("submit", tmp_shared / "run", "--json").stdout) for _ in range(2))
    assert first["job_id"] == second["job_id"]
    assert lab.slurm("squeue", "-h", "-o", "%A").split() == [first["job_id"]]


@pytest.mark.parametrize("ended", [False, True])
def test_lost_answer_of_sbatch_is_found_again(lab: Lab, tmp_shared: Path, ended: bool) -> None:
    """jobspec died between sbatch's acceptance and its own record: only the intent is on disk."""
    spec = lab.command_spec("lost", ["true"] if ended else ["sleep", "60"])
    folder = tmp_shared / "run"
    assert lab.jobspec("render", spec, "--out", folder).returncode == 0
    job = json.loads(lab.jobspec("submit", folder, "--json").stdout)["job_id"]
    if ended:
        lab.await_end(job)
    record = json.loads((folder / "launch.json").read_text())
    (folder / "launch.json").write_text(json.dumps({**record, "job_id": "", "submit_time": 0.0}))
    again = lab.jobspec("submit", folder, "--json")
    assert again.returncode == 0, again.stderr
    assert json.loads(again.stdout)["job_id"] == job
    # Asked of the queue: slurmdbd learns a job's name only seconds after its end.
    assert lab.slurm("squeue", "-h", "-t", "all", "--name", record["job_name"], "-o", "%A").split() == [job]


def test_refusal_shows_slurms_words_and_what_to_change(lab: Lab) -> None:
    lab.add_profile("lab-nowhere", partition="nowhere")
    done = lab.jobspec("submit", lab.command_spec("refused", ["true"]), cluster="lab-nowhere")
    assert done.returncode == 2
    assert "invalid partition specified: nowhere" in done.stderr
    assert "slurm.partition" in done.stderr
    assert lab.jobspec("status", "last").stdout.count("not started") == 1


def test_many_runs_cost_two_scheduler_calls(lab: Lab, tmp_shared: Path) -> None:
    """squeue and sacct are counted by wrappers that call the real ones."""
    for number in range(4):
        lab.submit(lab.command_spec(f"many-{number}", ["sleep", "60"] if number % 2 else ["true"]))
    tools = tmp_shared / "bin"
    tools.mkdir()
    for name in ("squeue", "sacct", "scontrol", "sinfo"):
        (tools / name).write_text(
            f'#!/bin/sh\necho {name} >> {tmp_shared}/calls\nexec /usr/bin/{name} "$@"\n'
        )
        (tools / name).chmod(0o755)
    path = f"{tools}:{lab.python.parent}:/usr/bin:/bin"
    done = lab.jobspec("status", "--all", "--json", env={"PATH": path})
    assert done.returncode == 0, done.stderr
    assert sum(row["name"].startswith("many-") for row in json.loads(done.stdout)) == 4
    assert sorted((tmp_shared / "calls").read_text().split()) in (["sacct", "squeue"], ["squeue"])


def test_profile_is_detected_and_proved(lab: Lab, tmp_shared: Path) -> None:
    found = lab.jobspec("cluster", "detect", "--name", "found")
    assert found.returncode == 0, found.stderr
    text = found.stdout.replace("/shared/jobspec-runs", str(lab.runs))
    profile = tmp_shared / "found.yaml"
    profile.write_text("\n".join(line for line in text.splitlines() if "cpus:" not in line))
    checked = lab.jobspec("cluster", "check", "--cluster-file", profile, "--nodes", "2", "--json")
    assert checked.returncode == 0, checked.stdout + checked.stderr
    assert sorted(node["host"] for node in json.loads(checked.stdout)["nodes"]) == ["n1", "n2"]


def test_folder_that_nodes_do_not_see_fails_the_check(lab: Lab, tmp_shared: Path) -> None:
    """/tmp is each node's own, and so is no place for runs."""
    profile = tmp_shared / "own.yaml"
    text = (lab.clusters / "lab.yaml").read_text().replace("name: lab\n", "name: own\n")
    profile.write_text(text.replace(f"runs: {lab.runs}", "runs: /tmp/not-shared"))
    done = lab.jobspec("cluster", "check", "--cluster-file", profile, "--timeout", "60", timeout=120)
    assert done.returncode == 2
    assert "Traceback" not in done.stderr
    assert "share the runs folder with the nodes" in done.stderr
