"""When a kept Ray is fit for another run: each thing that may be otherwise, alone."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from jobspec.plan import ContainerPlan, GroupPlan, Mount, Plan, RayPlan
from jobspec.runtime.base.identity import Identity
from jobspec.runtime.raycluster.fitness import differences, environment, left, node_left, terms

CONTAINER = ContainerPlan("pyxis", "/images/a.sqsh", digest="sha256:1", mounts=(Mount("/a", "/a"),))
PLAN = Plan(
    "t",
    "command",
    "lab",
    "slurm",
    "ray",
    nodes=2,
    gpus_per_node=4,
    ray=RayPlan(num_gpus=4),
    container=CONTAINER,
)
WHO = Identity(Path("/runs/t/1"), 1, 0, ("n1", "n2"), "token", job_id="7")
PROCESS = {"Python": "/usr/bin/python3 3.11.7", "Ray": "2.60.0", "pid namespace": 1, "user": 1000}
CLEAN: dict[str, Any] = {
    "cluster": "ab",
    "session": "session_1",
    "nodes": ["n2", "n1"],
    "jobs": [],
    "actors": [],
    "groups": [],
    "demands": [],
    "used": [],
    "keys": ["session_name", "extra_usage_tag_num_drivers", "gcs://_ray_pkg_1.zip", "RemoteFunction:1:\n"],
}


def kept(plan: Plan = PLAN, who: Identity = WHO, **process: Any) -> list[str]:
    return differences(terms(PLAN, WHO, PROCESS), terms(plan, who, {**PROCESS, **process}))


def test_the_next_run_of_the_same_plan_has_the_same_terms() -> None:
    next_run = replace(WHO, run_dir=Path("/runs/other/2"), token="another", attempt=3)
    later = replace(PLAN, name="other", hold=True, kept_ray=True, ray=RayPlan(num_gpus=4, join_timeout_s=9))
    assert kept(later, next_run) == []


@pytest.mark.parametrize(
    ("plan", "who", "process", "said"),
    [
        (PLAN, replace(WHO, job_id="8"), {}, "allocation: `7` of its Ray, `8` of this run"),
        (PLAN, replace(WHO, hosts=("n1",)), {}, 'nodes: `["n1", "n2"]` of its Ray, `["n1"]` of this run'),
        (replace(PLAN, container=replace(CONTAINER, image="/b")), WHO, {}, "container image: `/images/a"),
        (replace(PLAN, container=replace(CONTAINER, digest="")), WHO, {}, "container digest: `sha256:1`"),
        (replace(PLAN, container=replace(CONTAINER, runtime="none")), WHO, {}, "container runtime: `pyxis`"),
        (replace(PLAN, container=replace(CONTAINER, mounts=())), WHO, {}, "container mounts: "),
        (replace(PLAN, ray=RayPlan(port=6380, num_gpus=4)), WHO, {}, "Ray's port: `6379` of its Ray, `6380`"),
        (replace(PLAN, ray=RayPlan(num_gpus=4, port_max=20500)), WHO, {}, "Ray's port_max: `20999`"),
        (replace(PLAN, gpus_per_node=2, ray=RayPlan(num_gpus=2)), WHO, {}, "GPUs of Ray: `4` of its Ray"),
        (replace(PLAN, groups=(GroupPlan("a", 0, 2, 4),)), WHO, {}, "group: `` of its Ray, `a` of this run"),
        (PLAN, WHO, {"Ray": "2.61.0"}, "Ray: `2.60.0` of its Ray, `2.61.0` of this run"),
        (PLAN, WHO, {"Python": "/opt/python 3.12"}, "Python: `/usr/bin/python3 3.11.7`"),
        (PLAN, WHO, {"pid namespace": 2}, "pid namespace: `1` of its Ray, `2` of this run"),
    ],
)  # fmt: skip
def test_what_ray_was_started_with(plan: Plan, who: Identity, process: dict[str, Any], said: str) -> None:
    assert any(said in reason for reason in kept(plan, who, **process))


def test_variables_of_the_run_travel_and_others_are_reasons() -> None:
    before = {
        "JOBSPEC_RUN_DIR": "/runs/a", "JOBSPEC_DATA_OLD": "/x", "PYTHONPATH": "/src:/runs/a/runtime.pyz",
        "NCCL": "1", "RAY_AUTH_TOKEN": "secret-of-a", "TORCH_FR": "/l/run-1/flight",
        "WANDB_API_KEY": "secret", "SAME": "1",
    }  # fmt: skip
    now = {
        "JOBSPEC_RUN_DIR": "/runs/b", "PYTHONPATH": "/src:/runs/b/runtime.pyz", "NCCL": "2",
        "SAME": "1", "RAY_AUTH_TOKEN": "secret-of-b", "TORCH_FR": "/l/run-2/flight",
        "WANDB_API_KEY": "another", "NEW": "1",
    }  # fmt: skip
    reasons, handed = environment(
        before, now, ["/l/run-1", "/l/r-1", "/runs/a"], ["/l/run-2", "/l/r-2", "/runs/b"]
    )
    assert handed == {
        "JOBSPEC_RUN_DIR": "/runs/b",
        "JOBSPEC_DATA_OLD": "",
        "PYTHONPATH": "/src:/runs/b/runtime.pyz",
        "TORCH_FR": "/l/run-2/flight",
    }
    assert reasons == [
        "variable `NCCL` has another value",
        "variable `NEW` is set for this run alone",
        "variable `WANDB_API_KEY` has another value",
    ]
    assert "secret" not in str(reasons)


def judged(**facts: Any) -> list[str]:
    return left({**CLEAN, **facts}, ("n1", "n2"), ("session_1", "session_1"))


def test_a_clean_cluster_has_nothing_left() -> None:
    assert judged() == []


@pytest.mark.parametrize(
    ("facts", "said"),
    [
        ({"nodes": ["n1"]}, "its nodes that are alive are n1"),
        ({"jobs": ["train.py (pid 7)"]}, "driver `train.py (pid 7)` is alive"),
        ({"actors": ["a", "b", "c", "d", "e"]}, "actor `a`, `b`, `c` and 2 more is alive"),
        ({"groups": ["pg"]}, "placement group `pg` is not removed"),
        ({"demands": ['2 x {"GPU": 1}']}, 'demand `2 x {"GPU": 1}` waits for resources'),
        ({"used": ["5e+07 object_store_memory"]}, "amount `5e+07 object_store_memory` is in use"),
        ({"keys": ["session_name", "mine"]}, "key `mine` was written to its store"),
        ({"session": "session_2"}, "its GCS is of session `session_2`, node n1 has `session_1`"),
        ({"session": ""}, "its GCS is of session ``, node n1 has `session_1`"),
    ],
)
def test_what_is_left_in_the_cluster(facts: dict[str, Any], said: str) -> None:
    assert said in judged(**facts)


def test_what_is_left_on_a_node() -> None:
    assert node_left("n1", [], []) == []
    assert node_left("n1", ["17 ray::Leaky"], ["18, python3"]) == [
        "process `17 ray::Leaky` is left on n1",
        "process `18, python3` is on the GPUs of n1",
    ]
