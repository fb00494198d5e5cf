"""Modules that jobspec's own interpreter lacks for a run on this machine."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from jobspec.checks import at_submit
from jobspec.plan import RepoPlan
from jobspec.planning.interpreter import imported, missing_modules
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


def resolved(folder: Path, site: dict[str, Any] = LOCAL, **keys: Any) -> Resolved:
    data = {"version": 1, "name": "x", "framework": "command", **keys}
    cluster = parse_cluster(dump_spec(site), Path("here.yaml"), "--cluster-file", {})
    return resolve(parse_spec(dump_spec(data), str(folder / "spec.yaml"), env={}), cluster, env={})


def about_modules(found: Resolved) -> list[tuple[str, str]]:
    return [(item.rule, item.what) for item in found.findings if item.rule.endswith(".module")]


def test_modules_of_the_run_that_this_interpreter_lacks_stop_a_submission(tmp_path: Path) -> None:
    plan = resolved(tmp_path, train={"command": ["x"]}).ready_plan
    (finding,) = missing_modules(plan, ("yaml", "no_such_package"))
    assert (finding.rule, finding.what) == ("local.module", f"`{sys.executable}` has no `no_such_package`")
    assert [item.is_error for item in at_submit([finding])] == [True]
    (tmp_path / "no_such_package").mkdir()  # of a checkout
    repos = (RepoPlan("code", str(tmp_path), pythonpath=(str(tmp_path),)),)
    assert [*missing_modules(replace(plan, repos=repos), ("no_such_package",))] == []


@pytest.fixture(scope="module")
def venv(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A virtual environment without packages."""
    folder = tmp_path_factory.mktemp("venv") / "env"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(folder)], check=True)
    return folder


def test_a_virtual_environment_is_asked_by_its_files(venv: Path, tmp_path: Path) -> None:
    (site,) = venv.glob("lib/python3*/site-packages")
    python = str(venv / "bin/python")
    spec = {"train": {"command": ["x"]}, "container": {"python": python}, "launch": {"mode": "srun"}}
    plan = resolved(tmp_path, **spec).ready_plan
    asked = ("trl", "sqlite3", "compiled")
    (finding,) = missing_modules(plan, asked)
    assert finding.what == f"`{python}` has no `trl`, `compiled`"
    assert finding.fix == "install them in that environment, or name another one"
    (site / "trl").mkdir()
    (site / "compiled.cpython-39-x86_64-linux-gnu.so").touch()
    assert [*missing_modules(plan, asked)] == []


@pytest.mark.parametrize(
    "change",
    [
        lambda venv, site: (site / "__editable___x_finder.pth").write_text("import __editable___x_finder\n"),
        lambda venv, site: (venv / "pyvenv.cfg").write_text("include-system-site-packages = true\n"),
        lambda venv, site: (venv / "pyvenv.cfg").unlink(),
        lambda venv, site: [
            (site / "x.pth").write_text("../elsewhere\n"),
            (site / "../elsewhere/trl").mkdir(parents=True),
        ],
    ],
    ids=["editable", "system", "none", "folder"],
)
def test_nothing_is_said_where_files_do_not_tell(change: Any, tmp_path: Path) -> None:
    venv = tmp_path / "env"
    site = venv / "lib/python3.9/site-packages"
    site.mkdir(parents=True)
    (venv / "pyvenv.cfg").write_text("include-system-site-packages = false\n")
    spec = {"train": {"command": ["x"]}, "launch": {"mode": "srun"}}
    plan = resolved(tmp_path, **spec, container={"python": str(venv / "bin/python")}).ready_plan
    assert len([*missing_modules(plan, ("trl",))]) == 1
    change(venv, site)
    assert [*missing_modules(plan, ("trl",))] == []


def test_ray_is_looked_for_where_the_plan_starts_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "path", [])
    monkeypatch.setattr(sys, "meta_path", sys.meta_path[:3])  # those of Python itself
    for name in [name for name in sys.modules if name.partition(".")[0] == "ray"]:
        monkeypatch.delitem(sys.modules, name)
    spec = {"train": {"command": ["x"]}}
    for mode, expected in (("ray", ["local.module"]), ("srun", [])):
        found = resolved(tmp_path, launch={"mode": mode}, **spec)
        assert [rule for rule, _ in about_modules(found)] == expected


@pytest.mark.parametrize("name", ["PYTHONPATH", "PATH"])
def test_nothing_is_said_where_the_spec_sets_a_search_path(name: str, tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text("import no_such_package\n")
    spec = {"train": {"command": [sys.executable, "train.py"]}, "container": {"env": {name: "/somewhere"}}}
    found = resolved(tmp_path, **spec)
    assert about_modules(found) == []
    assert [*missing_modules(found.ready_plan, ("no_such_package",))] == []


def test_nothing_is_said_of_another_machine_an_image_or_another_interpreter(tmp_path: Path) -> None:
    asked, spec = ("no_such_package",), {"train": {"command": ["x"]}}
    slurm = {"version": 1, "name": "lab", "paths": {"runs": "/s", "node_local": "/n"}}
    python = {"container": {"python": sys.executable}}
    assert [*missing_modules(resolved(tmp_path, slurm, **spec, **python).ready_plan, asked)] == []
    image = {**LOCAL, "container": {"runtime": "apptainer"}}
    spec["container"] = {**python["container"], "image": "/x.sif"}
    assert [*missing_modules(resolved(tmp_path, image, **spec).ready_plan, asked)] == []
    spec["container"] = {"python": "/usr/bin/python3"}
    assert [*missing_modules(resolved(tmp_path, **spec).ready_plan, asked)] == []


def test_what_a_script_imports_in_any_case_is_looked_for_in_this_interpreter(tmp_path: Path) -> None:
    (tmp_path / "beside.py").write_text("raise SystemExit('this was imported')")
    (tmp_path / "code" / "package").mkdir(parents=True)
    (tmp_path / "train.py").write_text(
        "import os, beside, package, no_such.part\nfrom yaml import safe_load\nfrom nor_this import x\n"
        "try:\n    import apex\nexcept ImportError:\n    pass\n"
    )
    repos = [{"name": "code", "path": "code"}]
    found = resolved(tmp_path, train={"command": [sys.executable, "-u", "train.py"]}, repos=repos)
    assert about_modules(found) == [("command.module", f"`{sys.executable}` has no `no_such`, `nor_this`")]
    other = {"train": {"command": ["/usr/bin/python3", "train.py"]}}
    assert about_modules(resolved(tmp_path, **other)) == []


@pytest.mark.parametrize("text", [b"def (\n\0", b"x = " + b"(" * 100_000, b"x = " + b"-" * 200_000 + b"1"])
def test_a_script_that_is_no_python_imports_nothing(text: bytes, tmp_path: Path) -> None:
    script = tmp_path / "x.py"
    script.write_bytes(text)
    assert imported(script) == ()
