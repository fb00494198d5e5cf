"""Groups of unequal nodes inside the allocation: the order of the nodes, and what programs are told."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from jobspec.finding import JobspecError
from jobspec.plan import GroupPlan, Plan, RayPlan
from jobspec.runtime.base.identity import from_environment, group_variables, node_paths, program_environment
from jobspec.runtime.raycluster.process import RayPorts, RayStart, start_command

PLAN = Plan(
    "x",
    "command",
    "lab",
    "slurm",
    "ray",
    nodes=3,
    gpus_per_node=8,
    ray=RayPlan(num_gpus=8, num_cpus=96),
    groups=(GroupPlan("trainer", 0, 1, 8, "", 96), GroupPlan("cpu-envs", 1, 2, 0, "", 16)),
)
# What Slurm 22.05 sets in a step over two components: its own list of nodes is sorted.
STEP = {
    "JOBSPEC_TOKEN": "t",
    "JOBSPEC_NODELIST": "n4,n[1-2],",
    "SLURM_NODEID": "0",
    "SLURM_NNODES": "3",
    "SLURM_STEP_NODELIST": "n[1-2,4]",
    "SLURM_JOB_NODELIST": "n[1-2,4]",
    "SLURM_JOB_ID": "22",
}


def test_nodes_are_in_the_order_of_the_components() -> None:
    who = from_environment(Path("/run"), STEP)
    assert (who.name, who.hosts, who.is_head) == ("n4", ("n4", "n1", "n2"), True)
    assert from_environment(Path("/run"), {**STEP, "SLURM_NODEID": "2"}).name == "n2"
    without = {name: value for name, value in STEP.items() if name != "JOBSPEC_NODELIST"}
    assert from_environment(Path("/run"), without).name == "n1"
    assert len(from_environment(Path("/run"), {**STEP, "JOBSPEC_LOCAL": "1"}).hosts) == 1


def test_list_that_lacks_a_node_is_an_error() -> None:
    with pytest.raises(JobspecError, match="node 2 of 2"):
        from_environment(Path("/run"), {**STEP, "JOBSPEC_NODELIST": "n4,n1,", "SLURM_NODEID": "2"})


def test_programs_are_told_the_groups() -> None:
    who = from_environment(Path("/run"), {**STEP, "SLURM_NODEID": "1"})
    env = program_environment(PLAN, who, node_paths(PLAN, who), {})
    assert env["JOBSPEC_GROUP"] == "cpu-envs"
    assert env["JOBSPEC_GROUP_TRAINER"] == "n4"
    assert env["JOBSPEC_GROUP_CPU_ENVS"] == "n1,n2"
    assert (env["JOBSPEC_NODES"], env["JOBSPEC_GPUS_PER_NODE"]) == ("3", "0")
    assert group_variables(replace(PLAN, groups=()), who) == {}


def test_ray_of_a_node_has_what_its_group_has() -> None:
    start = RayStart("n1", "10.0.0.1", "10.0.0.4:6379", False, RayPorts(*range(9)), "/tmp/r", index=1)
    argv = start_command(PLAN, start)
    assert {"--num-gpus=0", "--num-cpus=16", '--resources={"group:cpu-envs": 1}'} <= set(argv)
    argv = start_command(replace(PLAN, groups=()), start)
    assert {"--num-gpus=8", "--num-cpus=96"} <= set(argv)
    assert not any(word.startswith("--resources") for word in argv)
