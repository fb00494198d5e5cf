"""Groups of unequal nodes on their way from the spec to the plan, the lock and what is shown of them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from jobspec.cli.commands.explain import _values
from jobspec.cli.plan_picture import cost_rows, node_rows
from jobspec.finding import Finding
from jobspec.plan import Plan, from_json, to_json
from jobspec.planning.lock import lock_text
from jobspec.planning.resolve import Resolved, resolve
from jobspec.spec.find_site import parse_cluster
from jobspec.spec.load import parse_spec
from jobspec.spec.yaml.dump import dump_spec

SITE: dict[str, Any] = {
    "version": 1,
    "name": "lab",
    "paths": {"runs": "/shared/runs", "node_local": "/raid"},
    "slurm": {
        "partition": "gpu",
        "gpu_types": {
            "h200": {"gres": "h200"},
            "l40s": {"partition": "l40s", "node": {"gpus": 4, "cpus": 32, "memory": "500G"}},
        },
    },
    "node": {"gpus": 8, "cpus": 96, "memory": "1900G"},
    "limits": {"max_nodes": 8, "partitions": {"gpu": {}, "l40s": {"max_nodes": 2}, "cpu": {}}},
}
TRAINER, ROLLOUT = {"name": "trainer", "nodes": 2}, {"name": "rollout", "nodes": 3}
ENVS = {"name": "envs", "gpus_per_node": 0, "cpus_per_node": 16, "slurm": {"partition": "cpu"}}


def resolved(*groups: dict[str, Any], site: dict[str, Any] = SITE, **keys: Any) -> Resolved:
    spec = {
        "version": 1,
        "name": "x",
        "framework": "command",
        "train": {"command": ["train"]},
        "launch": {"mode": "ray"},
        "resources": {"time": "01:00:00"},
        "groups": list(groups),
        **keys,
    }
    cluster = parse_cluster(dump_spec(site), Path("lab.yaml"), "--cluster-file", {"HOME": "/home/ann"})
    loaded = parse_spec(dump_spec(spec), "/specs/spec.yaml", env={})
    return resolve(loaded, cluster, env={"USER": "ann", "HOME": "/home/ann"})


def planned(*groups: dict[str, Any], **keys: Any) -> Plan:
    found = resolved(*groups, **keys)
    assert not errors(found), [finding.text() for finding in errors(found)]
    return found.ready_plan


def errors(found: Resolved) -> list[Finding]:
    return [finding for finding in found.findings if finding.is_error]


def test_nodes_of_the_run_are_those_of_its_groups_in_order() -> None:
    plan = planned(TRAINER, ROLLOUT, ENVS)
    assert (plan.nodes, plan.gpus, plan.gpus_per_node) == (6, 40, 8)
    assert [(group.name, list(group.indices)) for group in plan.groups] == [
        ("trainer", [0, 1]),
        ("rollout", [2, 3, 4]),
        ("envs", [5]),
    ]
    assert [plan.ray_gpus_of(node) for node in (0, 4, 5)] == [8, 8, 0]
    assert from_json(to_json(plan)) == plan


def test_groups_that_ask_for_the_same_share_an_allocation() -> None:
    assert len(planned(TRAINER, ROLLOUT).components) == 1
    first, second = planned(TRAINER, ROLLOUT, ENVS).components
    assert (first.nodes, first.slurm.partition, first.slurm.cpus_per_task) == (5, "gpu", 96)
    assert (second.nodes, second.slurm.partition, second.slurm.cpus_per_task) == (1, "cpu", 16)
    assert first.slurm.exclusive and second.slurm.exclusive


def test_kind_of_gpu_is_each_group_s_own() -> None:
    plan = planned({**TRAINER, "gpu_type": "h200"}, {"name": "rollout", "nodes": 2, "gpu_type": "l40s"}, ENVS)
    assert [(g.gpus_per_node, g.gpu_type, g.slurm.partition, g.slurm.gpu_type) for g in plan.groups] == [
        (8, "h200", "gpu", "h200"),
        (4, "l40s", "l40s", ""),
        (0, "", "cpu", ""),
    ]
    assert cost_rows(plan, "", 0)[0] == ("GPUs", "24 (2 x 8 h200 + 2 x 4 l40s)")


def test_nodes_without_gpus_are_of_no_kind() -> None:
    plan = planned(TRAINER, ENVS, resources={"time": "01:00:00", "gpu_type": "l40s"})
    assert [group.slurm.partition for group in plan.groups] == ["l40s", "cpu"]


@pytest.mark.parametrize(
    ("groups", "keys", "rule", "path", "says"),
    [
        ([TRAINER, ROLLOUT], {"resources": {"nodes": 4}}, "group.nodes", "resources.nodes", "5 nodes"),
        ([{**TRAINER, "gpus_per_node": 9}], {}, "resources.gpus-per-node", "groups[0].gpus_per_node", "8"),
        (
            [TRAINER, {"name": "b", "gpu_type": "l40s", "gpus_per_node": 8}],
            {},
            "resources.gpus-per-node",
            "groups[1].gpus_per_node",
            "group `b`: the spec asks for 8 GPUs per node, a node of `lab` has 4",
        ),
        ([TRAINER, {"name": "b", "gpu_type": "l40"}], {}, "resources.gpu-type", "groups[1].gpu_type", "l40"),
        (
            [TRAINER, {"name": "b", "nodes": 3, "gpu_type": "l40s"}],
            {},
            "resources.max-nodes",
            "groups[1].nodes",
            "allows 2",
        ),
        (
            [TRAINER, {**ENVS, "slurm": {"partition": "cpus"}}],
            {},
            "resources.partition",
            "groups[1].slurm.partition",
            "no partition `cpus`",
        ),
        ([TRAINER, ROLLOUT], {"framework": "trl", "train": {}}, "spec.groups", "groups", "`trl`"),
    ],
)
def test_what_cannot_be(groups: list[Any], keys: dict[str, Any], rule: str, path: str, says: str) -> None:
    found = [(f.path, f.what) for f in errors(resolved(*groups, **keys)) if f.rule == rule]
    assert [item[0] for item in found] == [path]
    assert says in found[0][1]


def test_limit_of_time_is_told_once() -> None:
    found = resolved(TRAINER, ROLLOUT, resources={"time": "900-00:00:00"})
    assert [f.rule for f in found.findings if "time" in f.rule] == []


def test_service_on_a_group_has_its_nodes_and_gpus() -> None:
    judge = {"name": "judge", "command": ["serve"], "on": "rollout", "gpus": 8}
    found = resolved(TRAINER, ROLLOUT, services=[judge])
    plan = found.ready_plan
    assert plan.services[0].nodes == (2, 3, 4)
    assert [plan.driver_gpus_of(node) for node in (0, 2)] == [8, 0]
    assert [f.rule for f in found.findings if f.rule.startswith("service.")] == []


def test_picture_has_a_row_for_each_group() -> None:
    assert node_rows(planned(TRAINER, {**ENVS, "nodes": 2})) == [
        ("0", "1", "Ray head, driver, group trainer", "8"),
        ("1", "1", "Ray worker, group trainer", "8"),
        ("2-3", "2", "Ray worker, group envs", "none"),
    ]


def test_explain_tells_where_the_sizes_come_from() -> None:
    shown = _values(resolved(TRAINER, ENVS, resources={"time": "01:00:00", "gpus_per_node": 4}))
    assert shown["resources.nodes"] == (3, "default the sum of `groups`")
    assert shown["groups[0].gpus_per_node"] == (4, "default resources.gpus_per_node")
    assert shown["groups[0].cpus_per_node"] == (96, "cluster lab")
    assert shown["groups[1].gpus_per_node"][0] == 0


def test_lock_of_a_run_with_groups_plans_the_same() -> None:
    found = resolved(TRAINER, ROLLOUT, ENVS)
    locked = yaml.safe_load(lock_text(found))
    assert locked["resources"]["nodes"] == 6
    assert [group["gpus_per_node"] for group in locked["groups"]] == [8, 8, 0]
    again = resolved(*locked["groups"], resources=locked["resources"])
    assert again.ready_plan.groups == found.ready_plan.groups


def test_a_service_with_its_own_container_stays_within_one_component() -> None:
    """It is a step of its own, whose nodes one component has."""
    judge = {"name": "judge", "command": ["serve"], "container": {"image": "x"}}
    site = {**SITE, "container": {"runtime": "pyxis"}}
    groups = (TRAINER, {**ROLLOUT, "slurm": {"partition": "cpu"}})

    def refused(*these: dict[str, Any], **where: Any) -> bool:
        found = resolved(*these, services=[{**judge, **where}], site=site)
        return "service.components" in [finding.rule for finding in errors(found)]

    assert refused(*groups, on="all") and refused(*groups, nodes=4)
    assert not any(refused(*groups, **where) for where in ({"on": "rollout"}, {"nodes": 2}, {}))
    assert not refused(TRAINER, ROLLOUT, on="all")
    apart = resolved(*groups, services=[{**judge, "nodes": 2}], site=site).ready_plan
    assert [apart.component_of(nodes) for nodes in ((0, 1), (3, 4), (1, 2))] == [0, 1, None]
