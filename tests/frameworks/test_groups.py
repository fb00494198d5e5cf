"""verl and SkyRL on the first of several groups: the others have environments, or GPUs that services take."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from jobspec.planning.resolve import Resolved, resolve
from jobspec.spec.find_site import load_cluster
from jobspec.spec.load import parse_spec
from tests.kits.fake_skyrl import make_fake_skyrl
from tests.kits.fake_verl import make_bridge, make_checkout

ROOT = Path(__file__).parents[2]
SITE = """\
version: 1
name: site
paths: {runs: /shared/runs, hf_home: /shared/hf, node_local: /mnt/local}
node: {gpus: 8, cpus: 96, memory: 1900G, gpu_memory: 141G}
"""
ENVS = {"name": "envs", "nodes": 2, "gpus_per_node": 0}
JUDGES = {"name": "judges", "nodes": 1, "gpus_per_node": 8}
SERVED = [{"name": "judge", "command": ["serve"], "on": "judges", "gpus": 8}]


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    home = tmp_path_factory.mktemp("home")
    make_checkout(home / "src/verl", "0.9.0", commit=True)
    make_bridge(home / "src/Megatron-Bridge", commit=True)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HOME", str(home))
        yield home


def resolved(name: str, home: Path, tmp_path: Path, groups: list[Any], **keys: Any) -> Resolved:
    """The framework's example with these groups behind its own nodes."""
    data = yaml.safe_load((ROOT / "examples" / name).read_text())
    sizes = data["resources"]
    trainer = {"name": "trainer", "nodes": sizes.pop("nodes", 1), "gpus_per_node": sizes.pop("gpus_per_node")}
    data |= {"groups": [trainer, *groups], **keys}
    if data["framework"] == "skyrl":
        checkout = make_fake_skyrl(tmp_path)
        data["repos"] = [{"name": "skyrl", "path": str(checkout), "prove": {"import": "skyrl"}}]
    (tmp_path / "site.yaml").write_text(SITE)
    env = {"USER": "u", "HOME": str(home)}
    cluster = load_cluster(None, tmp_path / "site.yaml", env=env)
    return resolve(parse_spec(yaml.safe_dump(data, sort_keys=False), env=env), cluster, env=env)


def wrong(found: Resolved) -> list[tuple[str, str]]:
    """Errors, but for models and data that were not staged here."""
    of_inputs = ("stage.", "container.")
    return [(f.rule, f.path) for f in found.findings if f.is_error and not f.rule.startswith(of_inputs)]


EXAMPLES = [
    ("verl/level0.yaml", "trainer.nnodes={}"),
    ("skyrl_smollm2.yaml", "trainer.placement.policy_num_nodes={}"),
]


@pytest.mark.parametrize(("name", "setting"), EXAMPLES)
@pytest.mark.parametrize(("group", "more"), [(ENVS, {}), (JUDGES, {"services": SERVED})])
def test_workers_are_on_the_first_group(
    name: str, setting: str, group: dict[str, Any], more: dict[str, Any], home: Path, tmp_path: Path
) -> None:
    found = resolved(name, home, tmp_path, [group], **more)
    assert wrong(found) == []
    assert found.plan is not None
    first = found.plan.groups[0]
    assert found.plan.nodes == first.nodes + group["nodes"]
    assert setting.format(first.nodes) in " ".join(found.plan.commands[-1].argv)
    assert [found.plan.ray_gpus_of(node) for node in (0, first.nodes)] == [first.gpus_per_node, 0]


@pytest.mark.parametrize(("name", "setting"), EXAMPLES)
def test_gpus_of_ray_on_two_groups_are_refused(name: str, setting: str, home: Path, tmp_path: Path) -> None:
    assert ("spec.groups", "groups[2]") in wrong(resolved(name, home, tmp_path, [ENVS, JUDGES]))
