"""The plan as `submit --dry-run` shows it: who runs where with how many GPUs, its cost, what is staged."""

from __future__ import annotations

from dataclasses import replace

import pytest

from jobspec.cli.plan_picture import cost_rows, gpu_hours, node_rows, queue_rows, stage_rows, use_rows
from jobspec.launchers.slurm.forecast import Forecast, Gpus
from jobspec.megatron.shape import RolloutShape, TrainShape
from jobspec.plan import CommandPlan, Plan, RayPlan, ServicePlan, SlurmPlan, StagePlan, UpstreamPlan
from jobspec.runtime.staging.shared import Item
from jobspec.spec.job import Pipeline

RAY = Plan(
    "x", "skyrl", "lab", "slurm", "ray", nodes=8, gpus_per_node=8, ray=RayPlan(),
    commands=(CommandPlan("main", ("x",)),), time_limit_s=5400, node_local="/raid",
)  # fmt: skip


@pytest.mark.parametrize(
    ("plan", "rows"),
    [
        (RAY, [("0", "1", "Ray head, driver", "8 h200"), ("1-7", "7", "Ray worker", "8 h200")]),
        (replace(RAY, nodes=1, gpus_per_node=0), [("0", "1", "Ray head, driver", "none")]),
        (
            replace(
                RAY, mode="srun", ray=None, commands=(CommandPlan("m", ("x",), on="all", tasks_per_node=4),)
            ),
            [("0-7", "8", "4 processes of the command", "8 h200")],
        ),
        (
            replace(RAY, mode="upstream", ray=None, nodes=2, upstream=UpstreamPlan("/repo")),
            [("0-1", "2", "`ray.sub` of the checkout", "8 h200")],
        ),
    ],
)
def test_nodes_and_roles(plan: Plan, rows: list[tuple[str, ...]]) -> None:
    assert node_rows(plan, "h200") == rows


def test_services_have_their_gpus_out_of_a_node_s() -> None:
    services = (
        ServicePlan("judge", ("j",), nodes=tuple(range(8)), gpus=2),
        ServicePlan("gym", ("g",), nodes=(7,)),
    )
    assert node_rows(replace(RAY, services=services), "h200") == [
        ("0", "1", "Ray head, driver", "6 h200"),
        ("1-7", "7", "Ray worker", "6 h200"),
        ("0-7", "8", "service judge", "2 h200"),
        ("7", "1", "service gym", "none"),
    ]


def test_pipelines_have_their_own_gpus_of_each_node() -> None:
    pipelines = [Pipeline("math", "m.yaml", (0, 1), ()), Pipeline("code", "c.yaml", (4,), (3, 4))]
    rows = node_rows(replace(RAY, nodes=2, gpus_per_node=4), "", pipelines)[2:]
    assert rows == [
        ("0", "1", "math trains", "numbers 0-1"),
        ("1", "1", "code trains", "numbers 0"),
        ("0", "1", "code generates", "numbers 3"),
        ("1", "1", "code generates", "numbers 0"),
    ]


def test_a_megatron_run_shows_its_sizes() -> None:
    shape = TrainShape(8, 8, tp=8, pp=4, ep=16, rollout=RolloutShape(2, tp=8, pp=4))
    assert use_rows(shape) == [
        ("trainer", "64 GPUs: tp 8 x pp 4 x cp 1 x dp 2, ep 16"),
        ("engines", "2 of 32 GPUs (tp 8 x pp 4), on the trainer's GPUs by turns"),
    ]


def test_the_cost_is_that_of_the_time_limit() -> None:
    assert gpu_hours(RAY) == 96
    plan = replace(RAY, slurm=SlurmPlan(array="0-2", requeue_max=2))
    assert cost_rows(plan, "h200", 3) == [
        ("GPUs", "64 h200 (8 x 8)"),
        ("GPU-hours", "96 at the time limit of 1 h 30 min, for each of 3 points, 3 attempts at most"),
    ]
    assert cost_rows(replace(RAY, time_limit_s=None), "", 0)[1][1] == "not known: no time limit is given"
    assert cost_rows(replace(RAY, gpus_per_node=0), "", 0) == []


def test_what_is_staged_where() -> None:
    model = StagePlan("m", "model", "/hf/m")
    data = StagePlan("d", "dataset", "/data/d", node_local=False)
    rows = stage_rows(replace(RAY, stage=(model, data)), [Item(model, True, 3 * 1024**3, 7)])
    assert rows == [
        ("model m", "3.0 GiB in 7 files, to /raid of each node, from /hf/m"),
        ("dataset d", "size not known, read from shared storage, from /data/d"),
    ]


def test_what_the_queue_says() -> None:
    forecast = Forecast(1000, 8200, "n[1-8]", gpus=(Gpus("h200", 3, 64),), unanswered="`sinfo` failed: away")
    rows = dict(queue_rows(forecast, replace(RAY, slurm=SlurmPlan(partition="batch"))))
    assert rows["expected start"].startswith("in 2 h 00 min (")
    assert rows["expected start"].endswith(" on n[1-8], as the queue is")
    assert rows["idle GPUs"] == "3 of 64 h200 in partition batch"
    assert rows["queue"] == "not asked for all: `sinfo` failed: away"
