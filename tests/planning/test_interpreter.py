"""Modules that the interpreter of a run on this machine lacks."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from jobspec.checks import at_submit
from jobspec.planning.interpreter import imported
from jobspec.planning.resolve import Resolved, resolve
from jobspec.spec.find_site import parse_cluster
from jobspec.spec.load import parse_spec
from jobspec.spec.yaml.dump import dump_spec

LOCAL: dict[str, Any] = {
    "version": 1,
    "name": "here",
    "scheduler": "local",
    "paths": {"node_local": "/tmp/n"},
}


@pytest.fixture(scope="module")
def bare(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A real interpreter without packages."""
    folder = tmp_path_factory.mktemp("bare")
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(folder)], check=True)
    return str(folder / "bin" / "python")


def resolved(folder: Path, site: dict[str, Any] = LOCAL, **keys: Any) -> Resolved:
    data = {"version": 1, "name": "x", "framework": "command", **keys}
    cluster = parse_cluster(dump_spec(site), Path("here.yaml"), "--cluster-file", {})
    return resolve(parse_spec(dump_spec(data), str(folder / "spec.yaml"), env={}), cluster, env={})


def about_modules(found: Resolved) -> list[tuple[str, str]]:
    return [(item.rule, item.what) for item in found.findings if item.rule.endswith(".module")]


def test_an_interpreter_without_ray_is_told_and_stops_a_submission(tmp_path: Path, bare: str) -> None:
    spec = {"launch": {"mode": "ray"}, "train": {"command": ["x"]}, "container": {"python": bare}}
    found = resolved(tmp_path, **spec)
    assert about_modules(found) == [("local.module", f"`{bare}` has no `ray`")]
    assert [item.is_error for item in at_submit(found.findings)] == [True]
    spec["launch"] = {"mode": "srun"}
    assert about_modules(resolved(tmp_path, **spec)) == []


def test_modules_of_the_framework_are_looked_for_too(tmp_path: Path, bare: str) -> None:
    model = tmp_path / "model"
    model.mkdir()
    (model / "config.json").write_text("{}")
    spec = {"framework": "trl", "model": {"path": str(model)}, "container": {"python": bare}}
    spec |= {"data": [{"name": "prompts", "source": str(model)}], "train": {"reward": "digits"}}
    found = about_modules(resolved(tmp_path, **spec))
    assert found == [("local.module", f"`{bare}` has no `ray`, `torch`, `transformers`, `trl`")]


def test_nothing_is_said_of_another_machine_or_an_image(tmp_path: Path, bare: str) -> None:
    spec = {"launch": {"mode": "ray"}, "train": {"command": ["x"]}, "container": {"python": bare}}
    slurm = {"version": 1, "name": "lab", "paths": {"runs": "/s", "node_local": "/n"}}
    assert about_modules(resolved(tmp_path, slurm, **spec)) == []
    image = {**LOCAL, "container": {"runtime": "apptainer"}}
    assert about_modules(resolved(tmp_path, image, **spec)) == []


def test_what_a_script_imports_in_any_case_is_looked_for_in_its_interpreter(
    tmp_path: Path, bare: str
) -> None:
    (tmp_path / "beside.py").write_text("")
    (tmp_path / "train.py").write_text(
        "import os, beside, numpy.linalg\nfrom yaml import safe_load\n"
        "try:\n    import apex\nexcept ImportError:\n    pass\n"
    )
    found = resolved(tmp_path, train={"command": [bare, "-u", "train.py"]})
    assert about_modules(found) == [("command.module", f"`{bare}` has no `numpy`, `yaml`")]
    assert about_modules(resolved(tmp_path, train={"command": [sys.executable, "train.py"]})) == []
    env = {"PYTHONPATH": "/somewhere"}
    assert (
        about_modules(resolved(tmp_path, train={"command": [bare, "train.py"]}, container={"env": env})) == []
    )


def test_a_script_that_is_no_python_imports_nothing(tmp_path: Path) -> None:
    script = tmp_path / "x.py"
    script.write_bytes(b"def (\n\0")
    assert imported(script) == ()
