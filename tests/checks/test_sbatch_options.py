"""The site's own sbatch options beside those of the job script: refused, told, or fine."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from jobspec.checks.sbatch_options import options_agree, read_option, written
from jobspec.finding import Finding
from jobspec.plan import Plan, SlurmPlan
from jobspec.rendering.files import directives
from jobspec.spec.find_site import parse_cluster
from jobspec.spec.load import parse_spec

SLURM = SlurmPlan(
    account="research", partition="gpu", qos="normal", time="1-00:00:00", gpus="gres", memory="120G",
    cpus_per_task=32,
)  # fmt: skip
PLAN = Plan("x", "command", "lab", "slurm", "ray", nodes=2, gpus_per_node=8, slurm=SLURM)
SPEC = parse_spec("version: 1\nname: x\nframework: command\ntrain: {command: [x]}\n", "/s.yaml", env={}).spec
PROFILE = parse_cluster(
    "{version: 1, name: lab, scheduler: slurm, paths: {runs: /r}}", Path("lab.yaml"), "", {}
).profile


def findings(option: str, **slurm: object) -> list[Finding]:
    plan = replace(PLAN, slurm=replace(SLURM, extra_sbatch=(option,), **slurm))  # type: ignore[arg-type]
    return list(options_agree(plan, SPEC, PROFILE))


@pytest.mark.parametrize(
    ("option", "ours"),
    [
        ("--mem-per-cpu=3968M", "--mem=120G"),
        ("--mem-per-gpu=64G", "--mem=120G"),
        ("--cpus-per-gpu=8", "--cpus-per-task=32"),
        ("--gres=gpu:4", "--gres=gpu:8"),
        ("--gres=nvme:1", "--gres=gpu:8"),
        ("--gpus-per-node=4", "--gres=gpu:8"),
        ("-G 8", "--gres=gpu:8"),
        ("-N4", "--nodes=2"),
        ("--nodes=1-4", "--nodes=2"),
        ("--ntasks=16", "--ntasks=2"),
        ("--tasks-per-node=8", "--ntasks-per-node=1"),
        ("--export=ALL", "--export=NIL"),
    ],
)
def test_a_contradiction_is_an_error_that_names_both(option: str, ours: str) -> None:
    (found,) = findings(option)
    assert found.is_error
    assert f"`{option}`" in found.what
    assert f"`{ours}`" in found.what


@pytest.mark.parametrize(
    ("option", "ours"),
    [
        ("--time=04:00:00", "--time=1-00:00:00"),
        ("-t 60", "--time=1-00:00:00"),
        ("-pdebug", "--partition=gpu"),
        ("--partition=gpu", "--partition=gpu"),
        ("--account=other", "--account=research"),
        ("--qos=high", "--qos=normal"),
        ("-c 8", "--cpus-per-task=32"),
        ("--mem=64G", "--mem=120G"),
        ("--gpus=16", "--gres=gpu:8"),
        ("--requeue", "--no-requeue"),
    ],
)
def test_an_option_that_wins_or_repeats_is_told(option: str, ours: str) -> None:
    (found,) = findings(option)
    assert not found.is_error
    assert f"`{option}`" in found.what
    assert f"`{ours}`" in found.what


@pytest.mark.parametrize(
    "option", ["--constraint=h200", "--reservation=rl", "--gres=gpu:h100:8,nvme:1", "-C h200", "-x node7"]
)
def test_an_option_of_its_own_is_fine(option: str) -> None:
    assert findings(option) == []


def test_the_fix_names_a_key_that_the_spec_has() -> None:
    (found,) = findings("--mem=64G")
    assert "resources.memory" not in found.fix  # `exclusive` asks for it, or this spec would have the key
    (nodes,) = findings("-N4")
    assert nodes.fix.endswith("or change `resources.nodes` in the spec")


def test_another_resource_beside_the_gpus_is_fine() -> None:
    assert findings("--gres=nvme:1", gpus="gpus-per-node") == []


def test_a_site_that_asks_for_no_gpus_itself_may_do_so() -> None:
    assert findings("--gres=gpu:h100:8", gpus="none") == []


def test_whole_nodes_leave_the_memory_to_a_site_that_names_it() -> None:
    """`--mem=0` beside the site's `--mem-per-cpu` would end every job of several nodes."""
    assert findings("--mem-per-cpu=3968M", memory="", exclusive=True) == []
    plan = replace(
        PLAN, slurm=replace(SLURM, memory="", exclusive=True, extra_sbatch=("--mem-per-cpu=3968M",))
    )
    assert [line for line in directives(plan, "/r") if line.startswith("--mem")] == ["--mem-per-cpu=3968M"]
    assert "--mem=0" in [*directives(replace(plan, slurm=replace(plan.slurm, extra_sbatch=())), "/r")]


def test_the_rule_knows_every_option_of_the_job_script() -> None:
    plan = replace(PLAN, slurm=replace(SLURM, exclusive=True, array="0-3", requeue_max=2))
    script = {read_option(line).name for line in directives(plan, "/r")}
    assert script - {option.name for option in written(plan)} == {"open-mode", "chdir", "signal"}
