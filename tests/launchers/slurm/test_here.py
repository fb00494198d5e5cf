"""The allocation that a shell has, and a run in it; tests/slurm does it in a real `salloc`."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from jobspec.finding import JobspecError
from jobspec.launchers.slurm.here import allocation
from jobspec.plan import Plan, SlurmPlan

SHELL = {
    "SLURM_JOB_ID": "4711", "SLURM_JOB_NUM_NODES": "3", "SLURM_JOB_CPUS_PER_NODE": "96(x2),64",
    "SLURM_NNODES": "3", "SLURM_GPUS_ON_NODE": "8", "SLURM_GPUS_PER_NODE": "h200:8",
    "SLURM_JOB_NODELIST": "n[1-3]",
    "SLURM_CPU_BIND": "cores", "SLURM_NTASKS": "24", "SLURM_STEP_ID": "2", "SLURM_PROCID": "0", "HOME": "/h",
}  # fmt: skip


def test_it_has_what_each_node_has_at_least_and_nothing_of_the_shells_own_step() -> None:
    found = allocation(SHELL)
    assert (found.job_id, found.nodes, found.cpus, found.gpus) == ("4711", 3, 64, 8)
    dropped = {"SLURM_CPU_BIND", "SLURM_NTASKS", "SLURM_STEP_ID", "SLURM_PROCID", "HOME"}
    assert set(found.env) == set(SHELL) - dropped


@pytest.mark.parametrize("env", [{}, {"SLURM_JOB_ID": "4711"}, {"SLURM_JOB_ID": "x", "SLURM_NNODES": "1"}])
def test_outside_of_one_it_is_refused(env: dict[str, str]) -> None:
    with pytest.raises(JobspecError, match="no allocation") as raised:
        allocation(env)
    assert "salloc" in raised.value.findings[0].fix


def test_without_gpus_in_slurm_none_is_known() -> None:
    assert allocation({"SLURM_JOB_ID": "1", "SLURM_NNODES": "1"}).gpus is None


def test_a_spec_gets_what_is_there_where_it_leaves_that_open() -> None:
    assert allocation(SHELL).sets({}) == ["resources.cpus_per_node=64", "resources.gpus_per_node=8"]
    given = {"resources": {"cpus_per_node": 8}, "launch": {"requeue": {"max_attempts": 3}}}
    assert allocation(SHELL).sets(given) == ["resources.gpus_per_node=8", "launch.requeue.max_attempts=1"]


@pytest.mark.parametrize(
    ("change", "path"),
    [
        ({"nodes": 4}, "resources.nodes"),
        ({"gpus_per_node": 9}, "resources.gpus_per_node"),
        ({"slurm": SlurmPlan(cpus_per_task=65)}, "resources.cpus_per_node"),
        ({"slurm": SlurmPlan(requeue_max=1)}, "launch.requeue.max_attempts"),
        ({"scheduler": "local"}, "cluster"),
        ({}, ""),
    ],
)
def test_what_it_lacks_is_told(change: dict[str, Any], path: str) -> None:
    plan = replace(Plan("x", "command", "lab", "slurm", "srun", nodes=3, gpus_per_node=8), **change)
    assert [(item.rule, item.path) for item in allocation(SHELL).lacks(plan)] == (
        [("launch.here", path)] if path else []
    )
