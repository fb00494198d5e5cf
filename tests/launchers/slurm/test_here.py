"""The allocation that a shell has, and a run in it; tests/slurm does it in a real `salloc`."""

from __future__ import annotations

import pytest

from jobspec.finding import JobspecError
from jobspec.launchers.slurm.here import allocation

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
