"""An allocation that is there, and a run in it; tests/slurm does it on a real Slurm."""

from __future__ import annotations

import os
import subprocess
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from jobspec.finding import JobspecError
from jobspec.launchers.access.here import LocalClient
from jobspec.launchers.slurm.here import Allocation, job_of, of_job, of_shell, parse_job
from jobspec.plan import Plan, SlurmPlan
from jobspec.runs.paths import RunPaths
from jobspec.runs.records import Launch

# `scontrol show job -d -o` of Slurm 22.05: two kinds of nodes, a job that asked for one GPU of each.
ROW = (
    "JobId=4711 JobName=no-shell UserId=ann(1000) GroupId=ann(1000) JobState=RUNNING Reason=None "
    "TimeLimit=02:00:00 StartTime=2026-11-30T08:30:00 EndTime=2026-11-30T10:30:00 Partition=main "
    "ReqNodeList=(null) NodeList=n[1-3] BatchHost=n1 NumNodes=3 NumCPUs=256 TRES=cpu=256,mem=24000M,node=3 "
    "JOB_GRES=gpu:h200:24   Nodes=n[1-2] CPU_IDs=0-95 Mem=960000 GRES=gpu:h200:8(IDX:0-7)   "
    "Nodes=n3 CPU_IDs=0-31,64-95 Mem=480000 GRES=gpu:h200:8(IDX:0-7) Command=(null) WorkDir=/h "
    "TresPerNode=gres:gpu:h200:4"
)
NOW = datetime(2026, 11, 30, 9)
SHELL = {
    "SLURM_JOB_ID": "4711", "SLURM_JOB_ACCOUNT": "rl", "SLURM_CPU_BIND": "cores", "SLURM_NTASKS": "24",
    "SLURM_PROCID": "0", "HOME": "/h",
}  # fmt: skip
HAS = Allocation(
    "4711", nodes=3, cpus=64, gpus=8, gpu_types=frozenset({"h200"}), memory_mib=1024, left_s=5400.0
)
PLAN = Plan("x", "command", "lab", "slurm", "srun", nodes=3, gpus_per_node=8)


@pytest.fixture
def client(tmp_path: Path) -> LocalClient:
    """A `scontrol` that prints the file `row`."""
    program = tmp_path / "bin" / "scontrol"
    program.parent.mkdir()
    unknown = '[ "$5" = 4711 ] || { echo "Invalid job id specified" >&2; exit 1; }'
    program.write_text(f"#!/bin/sh\n{unknown}\ncat {tmp_path}/row\n")
    program.chmod(0o755)
    (tmp_path / "row").write_text(ROW.replace("(1000)", f"({os.getuid()})") + "\n")
    return LocalClient({"PATH": f"{program.parent}:{os.environ['PATH']}"})


def test_it_has_what_each_node_has_at_least_and_a_step_gets() -> None:
    found = parse_job(ROW, NOW, 1000)
    assert (found.job_id, found.nodes, found.cpus, found.gpus, found.memory_mib) == ("4711", 3, 64, 4, 480000)
    assert (found.gpu_types, found.left_s, found.start) == ({"h200"}, 5400.0, "2026-11-30T08:30:00")
    assert found.env["SLURM_JOB_NODELIST"] == "n[1-3]"


def test_newer_words_no_gpus_and_no_end() -> None:
    assert parse_job(ROW.replace("gres:gpu:h200:4", "gres/gpu:h200:2"), NOW, 1000).gpus == 2
    bare = parse_job(
        ROW.replace("gpu:h200:8(IDX:0-7)", "").replace("TresPerNode=gres:gpu:h200:4", ""), NOW, 1000
    )
    assert bare.gpus is None
    assert parse_job(ROW.replace("2026-11-30T10:30:00", "Unknown"), NOW, 1000).left_s is None


@pytest.mark.parametrize(
    ("row", "said"),
    [
        (ROW.replace("ann(1000)", "bob(1001)"), "the job 4711 is of user bob"),
        (ROW.replace("JobState=RUNNING", "JobState=PENDING"), "the job 4711 is PENDING"),
        (ROW.replace("JobState=RUNNING", "JobState=TIMEOUT"), "the job 4711 is TIMEOUT"),
    ],
)
def test_a_job_that_takes_no_step_is_refused(row: str, said: str) -> None:
    with pytest.raises(JobspecError, match=said):
        parse_job(row, NOW, 1000)


def test_the_shell_keeps_what_is_of_the_job_and_nothing_of_its_own_step(client: LocalClient) -> None:
    found = of_shell(SHELL, client)
    assert found.env["SLURM_JOB_ACCOUNT"] == "rl"
    assert found.env["SLURM_NNODES"] == "3"
    assert not {"SLURM_CPU_BIND", "SLURM_NTASKS", "SLURM_PROCID", "HOME"} & set(found.env)
    assert of_shell({**SHELL, "SLURM_STEP_ID": "4294967290"}, client).job_id == "4711"  # salloc's own step


@pytest.mark.parametrize(
    ("env", "said"),
    [
        ({}, "there is no allocation here"),
        ({"SLURM_JOB_ID": "x"}, "there is no allocation here"),
        ({**SHELL, "SLURM_STEP_ID": "0"}, "this is a step of the job 4711"),
        ({**SHELL, "JOBSPEC_RUN_DIR": "/runs/x/7"}, "this is a step of the job 4711, of run `7`"),
        ({**SHELL, "SLURM_WORKING_CLUSTER": "two:10.0.0.1:6817:9984"}, "in the cluster `two`"),
        ({"SLURM_JOB_ID": "12"}, "this cluster's Slurm knows no job 12"),
    ],
)
def test_a_shell_without_one_is_told_why(env: dict[str, str], said: str, client: LocalClient) -> None:
    with pytest.raises(JobspecError, match=said):
        of_shell(env, client)


def test_an_array_is_no_single_job(client: LocalClient, tmp_path: Path) -> None:
    (tmp_path / "row").write_text(f"{ROW}\n{ROW}\n")
    with pytest.raises(JobspecError, match="is an array"):
        of_job("4711", client)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({}, ""),
        ({"launcher": "local", "job_id": "77"}, "of this machine, and no job"),
        ({"launcher": "local", "job_id": "77", "allocation": "4711"}, "itself in the allocation 4711"),
        ({"cluster": "other"}, "is on `other`, the spec is for `lab`"),
        ({"login": "far.example"}, "is reached by `far.example`"),
        ({"array": "0-3"}, "is an array of jobs"),
        ({"job_id": ""}, "is not known yet"),
    ],
)
def test_a_run_stands_for_its_job(change: dict[str, str], said: str) -> None:
    launch = replace(Launch("r", "/r", "lab", "slurm", "x-r", 0.0, job_id="4711"), **change)
    if not said:
        assert job_of(launch, "lab") == "4711"
        return
    with pytest.raises(JobspecError, match=said):
        job_of(launch, "lab")


def test_a_spec_gets_what_is_there_where_it_leaves_that_open() -> None:
    assert HAS.sets({}, True) == ["resources.cpus_per_node=64", "resources.gpus_per_node=8"]
    given = {"resources": {"cpus_per_node": 8}, "launch": {"requeue": {"max_attempts": 3}}}
    assert HAS.sets(given, True) == ["resources.gpus_per_node=8", "launch.requeue.max_attempts=1"]
    without = replace(HAS, gpus=None)
    assert "resources.gpus_per_node=0" in without.sets({}, True)
    assert without.sets({}, False) == ["resources.cpus_per_node=64"]  # Slurm does not count them there


@pytest.mark.parametrize(
    ("change", "path"),
    [
        ({"nodes": 4}, "resources.nodes"),
        ({"gpus_per_node": 9}, "resources.gpus_per_node"),
        ({"slurm": SlurmPlan(cpus_per_task=65)}, "resources.cpus_per_node"),
        ({"slurm": SlurmPlan(memory="2G")}, "resources.memory"),
        ({"slurm": SlurmPlan(gpu_type="a100")}, "resources.gpu_type"),
        ({"slurm": SlurmPlan(requeue_max=1)}, "launch.requeue.max_attempts"),
        ({"time_limit_s": 5401}, "resources.time"),
        ({"time_limit_s": 5400}, ""),
        ({"scheduler": "local"}, "cluster"),
        ({}, ""),
    ],
)
def test_what_it_lacks_is_told(change: dict[str, Any], path: str) -> None:
    found = HAS.lacks(replace(PLAN, **change))
    assert [(item.rule, item.path) for item in found] == ([("launch.here", path)] if path else [])


def test_the_own_script_of_a_framework_does_not_run_beside_a_held_run() -> None:
    upstream = replace(PLAN, mode="upstream")
    assert list(HAS.lacks(upstream)) == []
    assert [item.path for item in replace(HAS, held=True).lacks(upstream)] == ["launch.mode"]


@pytest.mark.parametrize("hold", [True, False])
def test_a_run_of_ours_takes_another_once_it_is_held(hold: bool, client: LocalClient, tmp_path: Path) -> None:
    run = tmp_path / "my runs" / "r"
    (run / "attempts/1").mkdir(parents=True)
    (run / "plan.json").touch()
    events = ['{"phase": "driver", "event": "start"}', '{"event": "progress", "data": {"what": "hold"}}', "{"]
    (run / "attempts/1/events.jsonl").write_text("\n".join(events if hold else events[:1]))
    row = (tmp_path / "row").read_text()
    (tmp_path / "row").write_text(row.replace("Command=(null)", f"Command={run}/job.sbatch"))
    if hold:
        assert of_job("4711", client).held
        return
    with pytest.raises(JobspecError, match="the job 4711, is not held"):
        of_job("4711", client)


def test_a_far_cluster_and_a_sweep_in_turn_are_told() -> None:
    assert [item.path for item in HAS.lacks(PLAN, "far", in_turn=True)] == ["cluster", "sweep.mode"]


def test_keys_about_a_job_of_its_own_are_told_each_with_its_path() -> None:
    data = {
        "slurm": {"nice": 7, "mail": {}},
        "resources": {"exclusive": True, "nodes": 1},
        "launch": {"requeue": {"max_attempts": 1, "grace": 9}, "hold_idle": "5m"},
    }
    paths = ["slurm.nice", "slurm.mail", "resources.exclusive", "launch.requeue.max_attempts"]
    found = list(HAS.unused(data))
    assert [item.path for item in found] == paths
    assert not any(item.is_error for item in found)
    # Only beside a held run is there a step that never ends.
    assert [item.path for item in replace(HAS, held=True).unused(data)] == [*paths, "launch.hold_idle"]
    asks = {"launch": {"kept_ray": True}}  # and only there a Ray is kept
    assert [item.path for item in HAS.unused(asks)] == ["launch.kept_ray"]
    assert list(replace(HAS, held=True).unused(asks)) == []


def test_the_grace_of_an_end_by_time_needs_no_job_of_its_own() -> None:
    data = {"launch": {"requeue": {"grace": 9}, "hold": True}}
    assert list(HAS.unused(data)) == []
    assert not any("requeue" in item for item in HAS.sets(data, True))


def test_one_run_at_a_time_for_as_long_as_a_process_of_it_lives(tmp_path: Path) -> None:
    run, folder = RunPaths(tmp_path / "20261128-013207-f5c483"), tmp_path / "allocations"
    with HAS.taken(run, folder) as kept:
        child = subprocess.Popen(["sleep", "60"], pass_fds=[kept or 0])
    try:
        with (
            pytest.raises(JobspecError, match=f"run `{run.run_id}` is in the allocation"),
            HAS.taken(run, folder),
        ):
            pass
        with replace(HAS, job_id="4712").taken(run, folder) as other:
            assert other
    finally:
        child.kill()
        child.wait()
    with HAS.taken(run, folder) as free:
        assert free


def test_a_folder_that_takes_no_lock_costs_the_protection_alone(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with HAS.taken(RunPaths(tmp_path), tmp_path / "file") as kept:
        assert kept is None
