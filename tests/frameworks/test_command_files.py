"""Relative files of a command: passed on by an absolute path, or refused with what to do."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from jobspec import frameworks
from jobspec.planning.lock import lock_text
from jobspec.planning.resolve import Resolved, resolve
from jobspec.spec.find_site import parse_cluster
from jobspec.spec.load import parse_spec
from jobspec.spec.yaml.dump import dump_spec

SITE = {
    "version": 1,
    "name": "here",
    "scheduler": "local",
    "paths": {"runs": "/tmp/r", "node_local": "/tmp/n"},
}
COMMAND: Any = frameworks.get("command")
IMAGE_SITE = {**SITE, "container": {"runtime": "apptainer"}}


@pytest.fixture
def base(tmp_path: Path) -> Path:
    (tmp_path / "train.py").write_text("print(1)\n")
    (tmp_path / "conf.yaml").write_text("a: 1\n")
    (tmp_path / "code" / "sub").mkdir(parents=True)
    (tmp_path / "code" / "sub" / "fit.py").write_text("import ray\n")
    return tmp_path


def resolved(base: Path, command: list[str], site: dict[str, Any] = SITE, **more: Any) -> Resolved:
    train = {"command": command, **more.pop("train", {})}
    data = {"version": 1, "name": "x", "framework": "command", "train": train, **more}
    cluster = parse_cluster(dump_spec(site), Path("here.yaml"), "--cluster-file", {})
    return resolve(parse_spec(dump_spec(data), str(base / "spec.yaml"), env={}), cluster, env={})


def rules(found: Resolved) -> list[str]:
    return [item.rule for item in found.findings if item.rule.startswith("command.")]


def argv(found: Resolved) -> tuple[str, ...]:
    return found.ready_plan.commands[0].argv


def test_a_script_beside_the_spec_is_found_and_said_to_be_unrecorded(base: Path) -> None:
    found = resolved(base, ["python3", "-u", "train.py", "--lr", "1"])
    assert argv(found) == ("python3", "-u", f"{base}/train.py", "--lr", "1")
    assert rules(found) == ["command.not-recorded"]


def test_a_script_of_a_repository_is_found_and_the_lock_names_it_below_the_checkout(base: Path) -> None:
    repos = [{"name": "code", "path": "code"}]
    for word in ("sub/fit.py", "code/sub/fit.py", "./code/sub/fit.py"):
        found = resolved(base, [sys.executable, word], repos=repos)
        assert argv(found) == (sys.executable, f"{base}/code/sub/fit.py")
        assert rules(found) == []
        assert found.ready_plan.mode == "ray"  # the script imports it
        assert yaml.safe_load(lock_text(found))["train"]["command"] == [sys.executable, "sub/fit.py"]


def test_the_lock_names_a_script_outside_of_checkouts_by_its_place(base: Path) -> None:
    locked = yaml.safe_load(lock_text(resolved(base, ["bash", "../" + base.name + "/train.py"])))
    assert locked["train"]["command"] == ["bash", f"{base}/train.py"]


def test_a_script_that_is_nowhere_is_refused_with_the_nearest_name(base: Path) -> None:
    found = resolved(base, ["python3", "trian.py"])
    assert rules(found) == ["command.file"]
    assert found.findings[0].why == "did you mean `train.py`?"


def test_a_file_that_an_image_may_hold_or_the_command_may_write_is_not_refused(base: Path) -> None:
    image = {"image": "/images/x.sif"}
    assert rules(resolved(base, ["python3", "trian.py"], IMAGE_SITE, container=image)) == []
    assert rules(resolved(base, ["python3", "-c", "x", "--out", "new.py"])) == []
    assert rules(resolved(base, ["tool.py"])) == []  # a program of PATH


def test_a_container_sees_no_script_beside_the_spec(base: Path) -> None:
    image = {"image": "/images/x.sif"}
    assert rules(resolved(base, ["python3", "train.py"], IMAGE_SITE, container=image)) == ["command.file"]
    mounted = {**image, "mounts": [{"source": str(base), "target": str(base)}]}
    found = resolved(base, ["python3", "train.py"], IMAGE_SITE, container=mounted)
    assert rules(found) == ["command.not-recorded"]


def test_another_file_beside_the_spec_is_left_and_named(base: Path) -> None:
    found = resolved(base, ["/bin/cat", "conf.yaml"])
    assert (argv(found), rules(found)) == (("/bin/cat", "conf.yaml"), ["command.file-beside"])


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("set -e\npython3 train.py --x", ["command.file"]),
        ("cd /src && python3 train.py", []),
        ("python3 /src/train.py; python3 $HOME/train.py; bash other.sh", []),
    ],
)
def test_a_bash_text_that_names_a_script_beside_the_spec(base: Path, text: str, expected: list[str]) -> None:
    assert rules(resolved(base, [text], train={"shell": True})) == expected


def test_a_module_beside_the_spec_needs_a_repository(base: Path) -> None:
    assert rules(resolved(base, ["python3", "-m", "train"])) == ["command.file"]
    repos = [{"name": "code", "path": ".", "pythonpath": ["."]}]
    assert rules(resolved(base, ["python3", "-m", "train"], repos=repos)) == []
    assert rules(resolved(base, ["python3", "-m", "json.tool"])) == []
    assert rules(resolved(base, ["python3", "-m", "pytest", "-m", "train"])) == []
    assert rules(resolved(base, ["python3", "-m", ".."])) == []
    assert rules(resolved(base, ["python3", "-m", "a" * 300])) == [], "no file has a name that long"


def mode(base: Path, *words: str, bash_text: bool = False, **more: Any) -> str:
    data = {"command": [*words], "shell": bash_text}
    spec = {"version": 1, "name": "x", "framework": "command", "train": data, **more}
    loaded = parse_spec(dump_spec(spec), str(base / "spec.yaml"), env={})
    return COMMAND.default_mode(loaded.spec, base, {"code": str(base / "code")})


def test_ray_is_seen_in_scripts_wherever_they_lie(base: Path) -> None:
    fit, plain = f"{base}/code/sub/fit.py", f"{base}/train.py"
    (base / "run.sh").write_text('#!/bin/bash\ncd "$(dirname "$0")"\npython3 code/sub/fit.py\n')
    (base / "run").write_text("#!/usr/bin/env python3\nfrom ray import serve\n")
    (base / "quiet.sh").write_text("# see nowhere.py, import ray\npython3 train.py\n")
    uses = [
        ("python3", fit),
        ("torchrun", "--nproc_per_node", "8", fit),
        ("bash", f"{base}/run.sh"),
        ("./run",),
        ("./run", "train.py"),
        ("bash", "-c", f"python3 {fit}"),
        ("/usr/bin/env", "bash", "-lc", f"python3 {plain}\npython3 {fit}"),
        ("bash", "-c", f"cd {base}/code && python3 sub/fit.py"),
        ("bash", "-c", "python3 -c 'import ray'"),
        ("bash", "-c", "set -e; ray start --head"),
        ("python3", "-u", "-c", "import os; import ray"),
        ("/venv/bin/ray", "job", "submit"),
    ]
    for words in uses:
        assert mode(base, *words) == "ray", words
    for words in (
        ("python3", plain),
        ("bash", "quiet.sh"),
        ("bash", "-c", f"python3 {plain} && echo done"),
        ("python3", "-c", "print('ray')"),
        ("python3", "-m", "json.tool"),
        ("python3", "train.py", "--out", "new.py"),
        ("/bin/cat", "x"),
        ("echo", "hi"),
    ):
        assert mode(base, *words) == "srun", words
    assert mode(base, f"cd {base}/code && python3 sub/fit.py", bash_text=True) == "ray"
    assert mode(base, f"python3 {plain}", bash_text=True) == "srun"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('"""\nimport ray\n"""\n# import ray\n', "srun"),
        ("import rayon, array\nfrom .ray import x\n", "srun"),
        ("def f():\n    from ray.util import placement_group\n", "ray"),
        ("import os\nos.system('ray start --head')\n", "ray"),
        ("print 'no Python 3'\n", "ray"),
    ],
)
def test_ray_in_a_python_script_is_what_python_imports(base: Path, text: str, expected: str) -> None:
    (base / "train.py").write_text(text)
    assert mode(base, "python3", "train.py") == expected


def test_what_cannot_be_read_may_use_ray(base: Path) -> None:
    for words in (
        ("python3", "/nowhere/train.py"),
        ("/nowhere/run",),
        ("bash", "-c", "python3 $HOME/train.py"),
        ("python3", "-m", "package.of_an_image"),
        ("bash", "-c", "exec python3 -u -m package.of_an_image"),
    ):
        assert mode(base, *words) == "ray", words
    assert mode(base, "python3", "train.py", container={"workdir": "/src"}) == "ray"  # another train.py
    assert mode(base, "python3", "-m", "torch.distributed.run", "train.py") == "srun"
    (base / "long.sh").write_text("x" * (1 << 20) + "\n")
    assert mode(base, "bash", "long.sh") == "ray"
    (base / "code" / "tool.py").write_text("print(1)\n")
    repos = [{"name": "code", "path": "code", "pythonpath": ["."]}]
    assert mode(base, "python3", "-m", "tool", repos=repos) == "srun"
    assert mode(base, "python3", "-m", "sub.fit", repos=repos) == "ray"


def test_scripts_that_call_each_other_are_read_once(base: Path) -> None:
    (base / "a.sh").write_text("bash b.sh\n")
    (base / "b.sh").write_text("bash a.sh\n")
    assert mode(base, "bash", "a.sh") == "srun"
