"""Engines that SkyRL does not start: services on nodes without a trainer, and what their settings need."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from jobspec.finding import Finding
from jobspec.planning.resolve import Resolved, resolve
from jobspec.spec.find_site import load_cluster
from jobspec.spec.load import load_spec, parse_spec
from tests.kits.fake_skyrl import make_fake_skyrl

EXAMPLE = Path(__file__).parents[3] / "examples/skyrl_rollout_nodes.yaml"
ENV = {"USER": "u", "HOME": "/home/u"}
SITE = """\
version: 1
name: site
paths: {runs: /shared/runs, hf_home: /shared/hf, node_local: /mnt/local}
node: {gpus: 8, cpus: 96, memory: 1900G, gpu_memory: 141G}
"""
ENGINE, COLOCATED = "generator.inference_engine", "trainer.placement.colocate_all"
LOCAL, URLS = f"{ENGINE}.run_engines_locally", f"{ENGINE}.external_server_urls"
ALL = "$${oc.decode:'[$${oc.env:JOBSPEC_SERVICE_ENGINES_URLS}]'}"
ONE = ["$${oc.env:JOBSPEC_SERVICE_ENGINES_URL}"]


@pytest.fixture(scope="module")
def checkout(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_fake_skyrl(tmp_path_factory.mktemp("skyrl"))


def resolved(
    checkout: Path,
    folder: Path,
    overrides: dict[str, Any] | None = None,
    *,
    command: str = "",
    engines: int = 0,
    **keys: Any,
) -> Resolved:
    """The example with the stand-in checkout; an override of None is removed."""
    data = yaml.safe_load(EXAMPLE.read_text())
    data["repos"] = [{"name": "skyrl", "path": str(checkout), "prove": {"import": "skyrl"}}]
    settings = data["train"]["overrides"]
    settings |= {f"{ENGINE}.{name}": value for name, value in settings.pop(ENGINE).items()}
    data["train"]["overrides"] = {
        name: value for name, value in (settings | (overrides or {})).items() if value is not None
    }
    data["services"][0]["on"] = data["services"][0].pop(True)  # YAML 1.1, which PyYAML reads
    if command:
        data["services"][0]["command"] = [command]
    if engines:
        data["train"]["rollout"] = {"engines": engines}
    data |= keys
    (folder / "site.yaml").write_text(SITE)
    del data["cluster"]
    loaded = parse_spec(yaml.safe_dump(data, sort_keys=False), env=ENV)
    return resolve(loaded, load_cluster(None, folder / "site.yaml", env=ENV), env=ENV)


def told(found: Resolved) -> list[Finding]:
    return [item for item in found.findings if item.rule == "skyrl.remote"]


def only(found: Resolved) -> Finding:
    (finding,) = told(found)
    return finding


def test_example_is_valid_as_it_stands_on_a_shipped_site() -> None:
    found = resolve(load_spec(EXAMPLE, env=ENV), load_cluster("slurm-pyxis", None, env=ENV), env=ENV)
    assert not [item for item in found.findings if item.is_error or item.rule == "skyrl.remote"]
    assert found.ready_plan.services[0].nodes == (1, 2)


def test_engines_have_the_rollout_nodes_and_ray_the_trainer(checkout: Path, tmp_path: Path) -> None:
    found = resolved(checkout, tmp_path)
    assert told(found) == []
    plan = found.ready_plan
    text = plan.commands[0].argv[0]
    assert " trainer.placement.policy_num_nodes=1 \\\n" in text
    # As OmegaConf's command line reads it: the shell takes the outer quotes, YAML the inner ones.
    assert f"'{URLS}=\"${{oc.decode:'\"'\"'[${{oc.env:JOBSPEC_SERVICE_ENGINES_URLS}}]'\"'\"'}}\"'" in text
    assert f" {LOCAL}=false " in text
    assert [plan.ray_gpus_of(node) for node in range(3)] == [8, 0, 0]
    (service,) = plan.services
    assert (service.nodes, service.gpus) == ((1, 2), 8)
    assert not any("engines share" in item for item in plan.expect.limitations)


@pytest.mark.parametrize(
    ("overrides", "path", "what", "fix"),
    [
        ({URLS: None}, URLS, "no setting names the servers", "JOBSPEC_SERVICE_ENGINES_URLS}]'}\"`"),
        ({COLOCATED: None}, COLOCATED, f"`{COLOCATED}` is true", "set it to false"),
        ({URLS: "http://node:8000"}, URLS, "is one text", "write a list"),
        ({URLS: ["$${oc.env:JOBSPEC_SERVICE_ENGINE_URL}"]}, URLS, "no service has the variable",
         "did you mean `JOBSPEC_SERVICE_ENGINES_URL`?"),
        ({URLS: ["$${oc.env:JOBSPEC_SERVICE_ENGINES_URLS}"]}, URLS, "is one item of a list", ALL),
    ],
)  # fmt: skip
def test_settings_that_skyrl_would_refuse_hours_later(
    checkout: Path, tmp_path: Path, overrides: dict[str, Any], path: str, what: str, fix: str
) -> None:
    finding = only(resolved(checkout, tmp_path, overrides))
    assert (finding.is_error, finding.path) == (True, f"train.overrides.{path}")
    assert what in finding.what and fix in (finding.fix or "")


@pytest.mark.parametrize(
    ("overrides", "path", "what"),
    [
        ({URLS: ONE}, f"train.overrides.{URLS}", "is the address of one of the 2 servers of `engines`"),
        ({LOCAL: None}, f"train.overrides.{LOCAL}", f"`{URLS}` names servers, and `{LOCAL}` is true"),
        ({LOCAL: None, URLS: None}, "services[0]", "starts engines, and no setting names their address"),
        ({f"{ENGINE}.gpu_memory_utilization": 0.9},
         f"train.overrides.{ENGINE}.gpu_memory_utilization", "does nothing here"),
    ],
)  # fmt: skip
def test_settings_that_work_otherwise_than_meant(
    checkout: Path, tmp_path: Path, overrides: dict[str, Any], path: str, what: str
) -> None:
    finding = only(resolved(checkout, tmp_path, overrides))
    assert (finding.is_error, finding.path) == (False, path)
    assert what in finding.what


SERVER = "python3 -m skyrl.backends.skyrl_train.inference_servers.vllm_server_actor --port $PORT"


@pytest.mark.parametrize(
    ("command", "whats"),
    [
        ("vllm serve $JOBSPEC_MODEL_PATH --port $PORT", ["service `engines` starts vLLM's own server"]),
        (SERVER, ["the engines have no `--worker-extension-cls`",
                  "the engines have no `--weight-transfer-config`"]),
        (f"{SERVER} --worker_extension_cls a.B --weight-transfer-config '{{}}'", []),
        (f"{SERVER} --config engines.yaml", []),
    ],
)  # fmt: skip
def test_servers_that_no_weights_reach(
    checkout: Path, tmp_path: Path, command: str, whats: list[str]
) -> None:
    found = told(resolved(checkout, tmp_path, command=command))
    assert [item.what for item in found] == whats
    assert all(item.is_error and item.path == "services[0].command" for item in found)


def test_servers_of_another_job_are_named_by_their_addresses(checkout: Path, tmp_path: Path) -> None:
    overrides = {URLS: ["http://r1:8000", "http://r2:8000"]}
    groups = [{"name": "trainer", "nodes": 1}]
    assert told(resolved(checkout, tmp_path, overrides, services=[], groups=groups)) == []


def test_gpus_of_a_second_group_point_to_this_way(checkout: Path, tmp_path: Path) -> None:
    found = resolved(checkout, tmp_path, {LOCAL: None, URLS: None}, services=[])
    (finding,) = [item for item in found.findings if item.rule == "spec.groups"]
    assert "to services, such as its engines (`examples/skyrl_rollout_nodes.yaml`)" in (finding.fix or "")


def test_trainer_of_remote_engines_needs_nothing_that_engines_in_ray_need(
    tmp_path: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """Neither Ray's Prometheus statistics, nor a node without another run for the ports from 8000 on."""
    checkout = make_fake_skyrl(tmp_path_factory.mktemp("served"), servers=True)
    resources = {"time": "01:00:00", "exclusive": False}
    trainer = {"name": "trainer", "nodes": 1, "gpus_per_node": 4}
    rollout = {"name": "rollout", "nodes": 2, "gpus_per_node": 8}
    remote = resolved(checkout, tmp_path, groups=[trainer, rollout], resources=resources)
    own = {LOCAL: None, URLS: None, COLOCATED: None}
    keys = {"services": [], "groups": [trainer], "resources": resources}
    local = resolved(checkout, tmp_path, own, engines=4, **keys)
    for found, needed in ((remote, False), (local, True)):
        assert ("ray.serve" in found.ready_plan.commands[0].argv[0]) == needed
        assert ("skyrl.shared-node" in {item.rule for item in found.findings}) == needed
