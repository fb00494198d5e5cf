"""Where the imports come from: the probe's own text in a real interpreter, before any Ray is needed."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from jobspec.frameworks.shared import import_probe
from tests.kits.fake_verl import make_bridge, make_checkout
from tests.kits.verl_kit import context, plan_of


def look(wanted: dict[str, object], *pythonpath: Path) -> subprocess.CompletedProcess[str]:
    env = {"PATH": "/usr/bin:/bin", "PYTHONPATH": ":".join(map(str, pythonpath))}
    argv = [sys.executable, "-S", import_probe.__file__, json.dumps(wanted)]
    return subprocess.run(argv, env=env, capture_output=True, text=True)


@pytest.fixture
def bridge(tmp_path: Path) -> Path:
    return make_bridge(tmp_path / "bridge")


def test_another_core_beside_the_right_bridge_is_named(bridge: Path, tmp_path: Path) -> None:
    """`megatron` is a namespace package: an image's folder that comes first brings its own Core."""
    image = tmp_path / "image"
    (image / "megatron/core").mkdir(parents=True)
    (image / "megatron/core/__init__.py").write_text("")
    core = bridge / "3rdparty/Megatron-LM"
    roots = {"megatron.bridge": str(bridge), "megatron.core": str(core)}
    wanted = {"modules": list(roots), "needed": [], "roots": roots}
    done = look(wanted, image, bridge / "src", core)
    assert done.returncode == 3
    assert f"jobspec: blocked: megatron.core is imported from {image}" in done.stdout
    assert "megatron.bridge is" not in done.stdout


def test_missing_module_and_broken_import_are_told_apart(bridge: Path) -> None:
    (bridge / "src/megatron/bridge/training/checkpointing.py").write_text("import modelopt\n")
    name = "megatron.bridge.training.checkpointing"
    done = look({"modules": ["modelopt"], "needed": [name], "roots": {}}, bridge / "src")
    assert done.returncode == 3
    assert "modelopt is not installed" in done.stdout
    assert (
        f"{name} cannot be imported in the driver: ModuleNotFoundError: No module named 'modelopt'"
        in done.stdout
    )


@pytest.mark.parametrize(("level", "needed"), [("smoke", False), ("checkpoint", True), ("fsdp", True)])
def test_levels_that_save_adapters_need_the_bridges_checkpointing(level: str, needed: bool) -> None:
    command = plan_of(context(level)).commands[0]
    assert command.name == "probe"
    assert ("bridge.training.checkpointing" in command.argv[0].splitlines()[1]) is needed


def test_driver_sees_what_the_script_will_put_first(tmp_path: Path) -> None:
    repos = {"verl": str(make_checkout(tmp_path / "verl", "0.9.0")), "bridge": "/src/bridge"}
    lines = plan_of(context(repos=repos)).commands[0].argv[0].splitlines()
    assert lines[0] == 'export JOBSPEC_WORKER_PYTHONPATH="$PYTHONPATH"'
    assert lines[1] == 'export PYTHONPATH="/workspace/Megatron-LM:$PYTHONPATH"'


def test_probe_runs_on_the_oldest_python() -> None:
    import ast

    ast.parse(Path(import_probe.__file__).read_text(), feature_version=(3, 9))


def test_lacking_modules_and_their_cures_are_told_together(bridge: Path) -> None:
    """On the first GPU each of these cost minutes: the model was built before it was noticed."""
    (bridge / "src/megatron/bridge/training/config.py").write_text("import megatron.energon\n")
    need = {"any_of": ["flash_attn", "flash_attn_3"], "problem": "no flash-attn is there: set it to auto"}
    there = {"any_of": ["no_such_module", "json"], "problem": "never said"}
    name = "megatron.bridge.training.config"
    wanted = {"modules": [], "needed": [name], "needs": [need, there], "roots": {}}
    done = look(wanted, bridge / "src")
    assert done.returncode == 3
    told = [line for line in done.stdout.splitlines() if "blocked" in line]
    assert told == [
        f"jobspec: blocked: {name} cannot be imported in the driver: ModuleNotFoundError: "
        "No module named 'megatron.energon'; install megatron-energon with its dependencies in the image",
        "jobspec: blocked: in the driver no flash-attn is there: set it to auto",
    ]


def test_bytecode_that_is_not_kept_is_said() -> None:
    env = {"PATH": "/usr/bin:/bin", "PYTHONDONTWRITEBYTECODE": "1"}
    wanted = {"modules": [], "needed": ["no_such_module"], "roots": {}}
    argv = [sys.executable, "-S", import_probe.__file__, json.dumps(wanted)]
    done = subprocess.run(argv, env=env, capture_output=True, text=True)
    assert done.stdout.startswith("jobspec: PYTHONDONTWRITEBYTECODE is set: ")


def test_interfaces_and_imports_that_a_setting_needs(tmp_path: Path) -> None:
    """A module can be found and still not import; a release can lack a parameter."""
    (tmp_path / "server.py").write_text("def socket(address, *, reuse_port): ...\nclass Args:\n    pass\n")
    (tmp_path / "serve.py").write_text("import grpc_reflection_that_is_not_there\n")
    needs = [
        {"takes": "server:socket", "parameter": "reuse_port", "problem": "never said"},
        {"takes": "server:Args", "parameter": "pd", "problem": "Args has no pd"},
        {"takes": "serve:anything", "parameter": "x", "problem": "never said: the import is another matter"},
        {"takes": "server:gone", "parameter": "x", "problem": "never said: nothing is known"},
        {"imports": "serve", "problem": "serve cannot be imported"},
        {"imports": "json", "problem": "never said"},
    ]
    done = look({"modules": ["serve"], "needed": [], "needs": needs, "roots": {}}, tmp_path)
    assert done.returncode == 3
    assert [line for line in done.stdout.splitlines() if "blocked" in line] == [
        "jobspec: blocked: in the driver Args has no pd",
        "jobspec: blocked: in the driver serve cannot be imported",
    ]
