"""Every rule over a plan: what breaks it, where it points, and that a sound spec breaks none."""

from __future__ import annotations

import copy
import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import jobspec.checks
from jobspec.checks import RULES, at_submit, check, check_secrets
from jobspec.plan import ContainerPlan, GroupPlan, Mount, Plan, ServicePlan, SlurmPlan, UpstreamPlan
from jobspec.planning.resolve import resolve
from jobspec.spec.find_site import parse_cluster
from jobspec.spec.load import parse_spec
from jobspec.spec.yaml.dump import dump_spec

SPEC: dict[str, Any] = {
    "version": 1,
    "name": "x",
    "framework": "command",
    "train": {"command": ["x"]},
    "resources": {"nodes": 2, "time": "01:00:00"},
    "container": {"image": f"registry.example.com#nvidia/x@sha256:{'a' * 64}"},
}
PROFILE: dict[str, Any] = {
    "version": 1,
    "name": "lab",
    "container": {"runtime": "pyxis"},
    "paths": {"runs": "/shared/runs", "hf_home": "/shared/hf", "node_local": "/raid/ann"},
    "node": {"cpus": 64, "gpus": 8, "memory": "900G"},
    "limits": {"max_nodes": 4, "max_time": "24:00:00"},
}
LOCAL = {"scheduler": "local", "node": None, "limits": None, "container": {"runtime": "none"}}
BARE = {"container": {"runtime": "none"}}
MOUNT = {"source": "/a", "target": "/a"}
COMMIT = "a" * 40
NOT_PINNED = ("container.image-tag", "container.image-latest")
GROUPS = [{"name": "trainer"}, {"name": "envs", "gpus_per_node": 0}]
ODD = Mount("/a%j", "/a")


def merged(base: Mapping[str, Any], change: Mapping[str, Any]) -> dict[str, Any]:
    """`base` with the keys of `change`, mappings merged and None removing a key."""
    made = copy.deepcopy(dict(base))
    for key, value in change.items():
        if value is None:
            made.pop(key, None)
        elif isinstance(value, dict) and isinstance(made.get(key), dict):
            made[key] = merged(made[key], value)
        else:
            made[key] = value
    return made


def found(spec: Mapping[str, Any], profile: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Rule and path of what the checks say; other findings of the resolution are left out."""
    loaded = parse_spec(dump_spec(merged(SPEC, spec)), "/specs/spec.yaml", env={})
    cluster = parse_cluster(
        dump_spec(merged(PROFILE, profile)), Path("lab.yaml"), "--cluster-file", {"HOME": "/home/ann"}
    )
    resolved = resolve(loaded, cluster, env={"USER": "ann", "HOME": "/home/ann"})
    assert resolved.plan is not None, [finding.text() for finding in resolved.findings]
    findings = check(resolved.plan, resolved.spec, resolved.cluster.profile)
    assert all(finding.what and finding.fix for finding in findings)
    return [(finding.rule, finding.path) for finding in findings]


def service(name: str = "judge", **keys: Any) -> dict[str, Any]:
    return {"name": name, "command": ["serve"], **keys}


CASES: list[tuple[str, str, dict[str, Any], dict[str, Any]]] = [
    ("resources.local-nodes", "resources.nodes", {"container": None}, LOCAL),
    ("resources.max-nodes", "resources.nodes", {"resources": {"nodes": 5}}, {}),
    ("resources.max-time", "resources.time", {"resources": {"time": "2-00:00:00"}}, {}),
    ("resources.no-time", "resources", {"resources": {"time": None}}, {}),
    ("resources.gpus-per-node", "resources.gpus_per_node", {"resources": {"gpus_per_node": 9}}, {}),
    ("resources.cpus-per-node", "resources.cpus_per_node", {"resources": {"cpus_per_node": 65}}, {}),
    ("resources.memory", "resources.memory", {"resources": {"memory": "1T"}}, {}),
    (
        "resources.site-default",
        "resources",
        {"resources": {"nodes": 1, "gpus_per_node": 8, "exclusive": False, "cpus_per_node": 8}},
        {},
    ),
    (
        "resources.unused",
        "resources.gpu_type",
        {"resources": {"gpus_per_node": 0, "gpu_type": "h200"}},
        {"slurm": {"gpu_types": {"h200": {"gres": "h200"}}}},
    ),
    (
        "resources.sbatch",
        "resources.memory",
        {"resources": {"memory": "120G"}},
        {"slurm": {"extra_sbatch": ["--mem-per-cpu=3968M"]}},
    ),
    ("train.workers-gpus", "train.workers", {"train": {"workers": 18}}, {}),
    (
        "train.workers-gpus",
        "train.workers",
        {"train": {"workers": 14}, "services": [service(on="all", gpus=2)]},
        {},
    ),
    ("group.array", "sweep.mode", {"groups": GROUPS, "sweep": {"grid": {"container.workdir": ["/a"]}}}, {}),
    ("group.array", "coverage.split", {"groups": GROUPS, "coverage": {"levels": [0], "split": "jobs"}}, {}),
    ("group.nodelist", "slurm.nodelist", {"groups": GROUPS, "slurm": {"nodelist": "n1"}}, {}),
    ("train.workers-gpus", "train.workers", {"train": {"workers": 9}, "groups": GROUPS}, {}),
    ("service.gpus", "services[0].gpus", {"services": [service(on="envs", gpus=1)], "groups": GROUPS}, {}),
    ("service.nodes", "services[0].nodes", {"services": [service(nodes=3)]}, {}),
    ("service.no-runtime", "services[0].container", {"services": [service(container={"image": "x"})]}, BARE),
    (
        "service.components",
        "services[0].container",
        {"services": [service(on="all", container={"image": "x"})], "groups": GROUPS},
        {},
    ),
    (
        "container.image-missing",
        "services[0].container",
        {"services": [service(container={"python": "x"})]},
        {},
    ),
    (
        "container.image-form",
        "services[0].container.image",
        {"services": [service(container={"image": "-v"})]},
        {},
    ),
    (
        "container.mount-hides-run",
        "services[0].container.mounts",
        {"services": [service(container={"image": "/i", "mounts": [{"source": "/a", "target": "/shared"}]})]},
        {},
    ),
    (
        "env.reserved",
        "services[0].container.env.RAY_ADDRESS",
        {"services": [service(container={"image": "/i", "env": {"RAY_ADDRESS": "x"}})]},
        {},
    ),
    ("service.gpus", "services[0].gpus", {"services": [service(gpus=9)]}, {}),
    (
        "service.gpus",
        "services[1].gpus",
        {"services": [service(on="all", gpus=5), service("gym", nodes=1, gpus=4)]},
        {},
    ),
    ("service.no-gpus-left", "services[0].gpus", {"services": [service(on="all", gpus=8)]}, {}),
    ("service.idle-gpus", "services[0].gpus", {"services": [service(gpus=2)]}, {}),
    (
        "service.visible-devices",
        "container.env.CUDA_VISIBLE_DEVICES",
        {"services": [service(on="all", gpus=2)], "container": {"env": {"CUDA_VISIBLE_DEVICES": "0"}}},
        {},
    ),
    (
        "service.visible-devices",
        "",
        {"services": [service(on="all", gpus=2)]},
        {"env": {"CUDA_VISIBLE_DEVICES": "0"}},
    ),
    (
        "service.port",
        "services[1].port",
        {"services": [service(port=9000, on="all"), service("gym", port=9000, nodes=1)]},
        {},
    ),
    ("service.port", "services[0].port", {"services": [service(port=6379)], "launch": {"mode": "ray"}}, {}),
    ("train.workers-uneven", "train.workers", {"train": {"workers": 3}}, {}),
    ("launch.grace", "resources.time", {"resources": {"time": "5"}}, {}),
    ("launch.grace", "launch.requeue.grace", {"launch": {"requeue": {"grace": 3600}}}, {}),
    ("launch.hold-idle", "launch.hold_idle", {"launch": {"hold_idle": "5m"}}, {}),
    (
        "launch.requeue-local",
        "launch.requeue.max_attempts",
        {"resources": {"nodes": 1}, "container": None, "launch": {"requeue": {"max_attempts": 2}}},
        LOCAL,
    ),
    (
        "launch.requeue-no-grace",
        "launch.requeue.grace",
        {"launch": {"requeue": {"max_attempts": 2, "grace": 0}}, "checkpoint": {"dir": "/shared/c"}},
        {},
    ),
    ("launch.requeue-never", "watch.stall.action", {"watch": {"stall": {"action": "requeue"}}}, {}),
    ("launch.requeue-anew", "checkpoint", {"launch": {"requeue": {"max_attempts": 2}}}, {}),
    ("checkpoint.node-local", "checkpoint.dir", {"checkpoint": {"dir": "/raid/ann/c"}}, {}),
    ("checkpoint.node-local", "checkpoint.dir", {"checkpoint": {"dir": "/tmp/c"}}, {}),
    ("container.image-unused", "container.image", {}, BARE),
    (
        "repo.freeze-remote",
        "repos[0].freeze",
        {"repos": [{"name": "code", "path": "/no/code", "freeze": True}]},
        {"access": {"login": "ann@login.example.com"}},
    ),
    ("container.image-missing", "container", {"container": {"image": None}}, {}),
    ("container.registry-form", "container.image", {"container": {"image": "registry.example.com/x:1"}}, {}),
    ("container.registry-form", "container.image", {"container": {"image": "localhost:5000/x"}}, {}),
    ("container.image-form", "container.image", {"container": {"image": "-v"}}, {}),
    ("container.image-tag", "container.image", {"container": {"image": "nvidia/x:1"}}, {}),
    ("container.image-latest", "container.image", {"container": {"image": "nvidia/x:latest"}}, {}),
    ("container.image-latest", "container.image", {"container": {"image": "localhost:5000#x"}}, {}),
    ("container.source-tag", "container.source_tag", {"container": {"source_tag": "nvidia/x:1"}}, {}),
    (
        "container.image-form",
        "container.image",
        {"container": {"image": "ubuntu"}},
        {"container": {"runtime": "bubblewrap"}},
    ),
    (
        "container.mounts-unused",
        "container.mounts",
        {"container": {"image": None, "mounts": [{"source": "/a", "target": "/b"}]}},
        BARE,
    ),
    (
        "container.mount-characters",
        "container.mounts",
        {"container": {"mounts": [{"source": "/a,b", "target": "/a"}]}},
        {},
    ),
    (
        "container.mount-writable",
        "container.mounts",
        {"container": {"mounts": [{**MOUNT, "read_only": True}]}},
        {"container": {"runtime": "charliecloud"}},
    ),
    (
        "container.mount-hides-run",
        "container.mounts",
        {"container": {"mounts": [MOUNT, {"source": "/x", "target": "/shared/runs"}]}},
        {},
    ),
    ("container.workdir", "container.workdir", {"container": {"workdir": "work"}}, {}),
    ("env.reserved", "container.env.SLURM_NTASKS", {"container": {"env": {"SLURM_NTASKS": "1"}}}, {}),
    ("env.reserved", "container.env.RAY_ADDRESS", {"container": {"env": {"RAY_ADDRESS": "x"}}}, {}),
    ("paths.node-local-long", "", {"launch": {"mode": "ray"}}, {"paths": {"node_local": "/" + "x" * 60}}),
    ("model.unpinned", "model", {"model": {"id": "org/m"}}, {}),
    ("model.unpinned", "model.revision", {"model": {"id": "org/m", "revision": "v1"}}, {}),
    ("data.unpinned", "data[0]", {"data": [{"name": "d", "source": "org/d"}]}, {}),
    ("stage.hub-unpinned", "model", {"model": {"id": "org/m", "stage": "hub"}}, {}),
    ("stage.hub-unpinned", "data[0]", {"data": [{"name": "d", "source": "org/d", "stage": "hub"}]}, {}),
    ("stage.hub-by-path", "model.stage", {"model": {"path": "/data/m", "stage": "hub"}}, {}),
    (
        "stage.hub-no-internet",
        "model.stage",
        {"model": {"id": "org/m", "revision": COMMIT, "stage": "hub"}},
        {"network": {"internet": False}},
    ),
]  # fmt: skip


@pytest.mark.parametrize(
    ("rule", "path", "spec", "profile"), CASES, ids=[f"{case[0]}-{n}" for n, case in enumerate(CASES)]
)
def test_a_broken_rule_is_found(rule: str, path: str, spec: dict[str, Any], profile: dict[str, Any]) -> None:
    assert (rule, path) in found(spec, profile)


def test_a_sound_spec_breaks_no_rule() -> None:
    more = {
        "model": {"id": "org/m", "revision": COMMIT},
        "data": [{"name": "d", "source": "org/d", "revision": COMMIT, "stage": "hub"}],
        "checkpoint": {"dir": "${cluster:runs}/c"},
        "launch": {"requeue": {"max_attempts": 3}},
        "container": {"mounts": [{"source": "/data", "target": "/data", "read_only": True}]},
        "train": {"workers": 16},
    }
    assert found(more, {}) == []


@pytest.mark.parametrize(
    "image", ["ubuntu", "nvidia/cuda:12", "registry.example.com#nvidia/x", "/images/x.sqsh", "./x.sqsh"]
)
def test_images_that_pyxis_understands(image: str) -> None:
    assert [rule for rule, _ in found({"container": {"image": image}}, {}) if rule not in NOT_PINNED] == []


@pytest.mark.parametrize("image", ["/images/x.sqsh", f"x/y@sha256:{'b' * 64}", f"x/y:1@sha256:{'b' * 64}"])
def test_image_that_is_pinned_has_no_finding(image: str) -> None:
    assert found({"container": {"image": image}}, {}) == []


def test_source_tag_of_a_file_is_fine() -> None:
    assert found({"container": {"image": "/images/x.sqsh", "source_tag": "nvidia/x:1"}}, {}) == []


@pytest.mark.parametrize("image", ["registry.example.com/x:1", "docker://ubuntu"])
def test_other_runtimes_take_a_registrys_slash(image: str) -> None:
    rules = [rule for rule, _ in found({"container": {"image": image}}, {"container": {"runtime": "podman"}})]
    assert [rule for rule in rules if rule not in NOT_PINNED] == []


def plan_rules(plan: Plan) -> list[str]:
    """The rules that a hand-made plan breaks: what no spec can hold any more, or the loader refuses first."""
    spec = parse_spec(dump_spec(merged(SPEC, {"container": {"image": None}})), "/s.yaml", env={}).spec
    profile = parse_cluster(dump_spec(merged(PROFILE, BARE)), Path("lab.yaml"), "--cluster-file", {}).profile
    return [finding.rule for finding in check(plan, spec, profile)]


def bare(**keys: Any) -> Plan:
    base: dict[str, Any] = {"time_limit_s": 3600, "runs": "/r", "hold": True}
    return Plan("x", "command", "lab", "slurm", "ray", **{**base, **keys})


@pytest.mark.parametrize(
    ("keys", "rules"),
    [
        ({}, []),
        ({"hold": False}, ["launch.no-command"]),
        ({"env": {"X": "a\0b"}}, ["value.unpassable"]),
        ({"env": {"X": "\udcff"}}, ["value.unpassable"]),
        ({"env": {"X": "a\\u0000b"}}, []),
        ({"runs": "/a\nb"}, ["paths.characters"]),
        ({"env": {"HF_TOKEN": "x"}}, ["env.secret"]),
        ({"env": {"X": "1"}, "secrets": ("X",)}, ["env.secret-twice"]),
        ({"env": {"HF_ENDPOINT": "hub.example.org"}}, ["env.hub-endpoint"]),
        ({"env": {"HF_ENDPOINT": "https://hub.example.org"}}, []),
    ],
)
def test_plans_that_no_spec_should_give(keys: dict[str, Any], rules: list[str]) -> None:
    assert plan_rules(bare(**keys)) == rules


@pytest.mark.parametrize(
    ("keys", "rules"),
    [
        ({}, []),
        ({"upstream": None}, ["launch.upstream-unsupported"]),
        ({"gpus_per_node": 2}, ["launch.upstream-gpus"]),
        ({"slurm": SlurmPlan()}, ["launch.upstream-shared"]),
        ({"slurm": SlurmPlan(exclusive=True), "gpus_per_node": 2}, []),
        ({"scheduler": "local"}, ["launch.upstream-slurm"]),
        ({"container": ContainerPlan()}, ["launch.upstream-container"]),
        ({"upstream": UpstreamPlan("/src/my RL")}, ["launch.upstream-characters"]),
        ({"runs": "/r/$(id)"}, ["launch.upstream-characters"]),
        ({"container": ContainerPlan("pyxis", "/i/a,b.sqsh")}, ["launch.upstream-characters"]),
        ({"container": ContainerPlan("pyxis", "i", mounts=(ODD,))}, ["launch.upstream-characters"]),
    ],
)  # fmt: skip
def test_an_upstream_script_gets_only_what_it_can_take(keys: dict[str, Any], rules: list[str]) -> None:
    image, own = (
        ContainerPlan("pyxis", "registry.example.com#nvidia/x:1"),
        SlurmPlan(exclusive=True, gpus="gres"),
    )
    sound = replace(
        bare(gpus_per_node=8), mode="upstream", upstream=UpstreamPlan("/src/RL"), container=image, slurm=own
    )
    found = plan_rules(replace(sound, **keys))
    assert [rule for rule in found if rule.startswith("launch.upstream")] == rules


def test_a_held_run_ends_idle_only_where_its_own_step_is_known() -> None:
    held = bare(hold_idle_s=300)
    plans = (
        held,
        replace(held, hold=False),
        replace(held, scheduler="local"),
        replace(held, mode="upstream"),
    )
    assert [plan_rules(plan).count("launch.hold-idle") for plan in plans] == [0, 1, 1, 1]


def test_a_kept_ray_needs_a_held_run_that_can_have_one() -> None:
    ray = replace(bare(kept_ray=True), mode="ray")
    podman = replace(ray, container=ContainerPlan("podman", "/images/a"))
    gpus = replace(ray, services=(ServicePlan("judge", ("serve",), gpus=1),))
    plans = (ray, replace(ray, mode="srun"), replace(ray, scheduler="local"), podman, gpus)
    assert [plan_rules(plan).count("launch.kept-ray") for plan in plans] == [0, 1, 1, 1, 1]
    assert plan_rules(replace(podman, kept_ray=False)).count("launch.kept-ray") == 0


def test_services_of_a_script_that_starts_ray_itself() -> None:
    services = (ServicePlan("judge", ("x",)),)
    assert "service.upstream" in plan_rules(replace(bare(services=services), mode="upstream"))
    assert "service.upstream" not in plan_rules(bare(services=services))


def test_groups_of_a_script_that_starts_ray_itself() -> None:
    groups = (GroupPlan("a"), GroupPlan("b", 1))
    assert "group.upstream" in plan_rules(replace(bare(groups=groups, nodes=2), mode="upstream"))
    assert "group.upstream" not in plan_rules(bare(groups=groups, nodes=2))


@pytest.mark.parametrize(
    ("services", "what"),
    [
        (
            [service(on="all", gpus=5), service("gym", nodes=1, gpus=4)],
            "services take 9 GPUs of node 1 (5 of `judge` + 4 of `gym`), it has 8",
        ),
        (
            [service(gpus=2), service("gym", nodes=1, gpus=1)],
            "1 GPUs have nothing to do: the driver has 6 on each node, as many as node 0 has left",
        ),
        ([service(on="all", gpus=2)], ""),
        ([service(port=9000), service("gym", port=9000, nodes=1)], ""),
    ],
)
def test_gpus_are_counted_for_each_node(services: list[dict[str, Any]], what: str) -> None:
    loaded = parse_spec(dump_spec(merged(SPEC, {"services": services})), env={})
    cluster = parse_cluster(dump_spec(PROFILE), Path("lab.yaml"), "--cluster-file", {"HOME": "/home/ann"})
    findings = resolve(loaded, cluster, env={"USER": "ann"}).findings
    assert [item.what for item in findings if item.rule.startswith("service.")] == [what][: bool(what)]


def test_every_rule_has_a_case() -> None:
    """The ids in the sources are the ids in this file: a new rule needs its case."""
    elsewhere = ("megatron.py", "rule_names.py")  # tested in tests/megatron and in test_rule_names
    files = Path(jobspec.checks.__file__).parent.glob("*.py")
    sources = "".join(path.read_text() for path in files if path.name not in elsewhere)
    ids = set(re.findall(r'(?:error|warning)\(\s*"([a-z]+\.[a-z-]+)"', sources))
    assert len(ids) > 25
    tested = Path(__file__).read_text()
    assert sorted(rule for rule in ids if f'"{rule}"' not in tested) == []
    assert len({rule.__name__ for rule in RULES}) == len(RULES)


def test_missing_secrets_are_warnings_until_submission() -> None:
    findings = check_secrets(["A", "B"], {"A": "x", "B": ""})
    assert [(f.rule, f.path, f.is_error) for f in findings] == [("secrets.unset", "secrets[1]", False)]
    assert [f.is_error for f in at_submit(findings)] == [True]
    assert [f.is_error for f in at_submit(findings, allowed=["secrets.unset"])] == [False]
