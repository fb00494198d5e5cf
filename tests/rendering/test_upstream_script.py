"""Mode `upstream`: what the framework's own batch script is given, in real bash, and what it hands on."""

from __future__ import annotations

import dataclasses
import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given

from jobspec.plan import CommandPlan, ContainerPlan, Mount, Plan, SlurmPlan, UpstreamPlan, from_json
from jobspec.planning.on_disk import missing_script
from jobspec.rendering.files import render
from jobspec.rendering.script_check import check_scripts
from jobspec.rendering.upstream_script import OURS
from tests.kits.render_kit import RUN_ID, Stage, resolve_text
from tests.rendering.test_hostile_values import ENV, FILE_NAME, VALUE, as_resolved, written

pytestmark = pytest.mark.usefixtures("no_reports")
# As ray.sub does it: text to a file as it is, bash runs the file, every SLURM_ variable gone.
SCRIPT = """\
set -eu
mkdir -p "$BASE_LOG_DIR/7-logs"
echo "$SETUP_COMMAND" >"$BASE_LOG_DIR/7-logs/setup_command.sh"
printf '%s' "$COMMAND" >"$BASE_LOG_DIR/7-logs/driver_command.sh"
record "$PWD" "$SLURM_SUBMIT_DIR" "$SLURM_JOB_ACCOUNT"
for v in ${!SLURM_@}; do unset "$v"; done
bash "$BASE_LOG_DIR/7-logs/setup_command.sh"
bash "$BASE_LOG_DIR/7-logs/driver_command.sh"
"""
JOB = {"SLURM_JOB_NODELIST": "n[1-2]", "SLURM_JOB_ID": "7", "USER": "ann", "XSECRET": "s3cret"}


def upstream_plan(root: Path | str, python: str, **keys: Any) -> Plan:
    container = ContainerPlan(
        "pyxis", "registry.example.com#nvidia/x:1", python, (Mount("/data", "/data", True),)
    )
    base: dict[str, Any] = {
        "nodes": 2,
        "container": container,
        "upstream": UpstreamPlan(str(root), env={"DEDICATED_RAY_HEAD": "1"}),
        "slurm": SlurmPlan(exclusive=True, cpus_per_task=12),
        "secrets": ("XSECRET",),
    }
    return Plan("x", "command", "lab", "slurm", "upstream", **{**base, **keys})


def stage_of(folder: Path) -> tuple[Stage, Path]:
    """Programs that record their calls, and a checkout with the script above."""
    stage = Stage(folder / "stage")
    stage.program("srun")
    stage.program("record")
    stage.program("scontrol", then="printf 'n1\\nn2\\n'")
    root = folder / "RL"
    root.mkdir()
    (root / "ray.sub").write_text(SCRIPT)
    return stage, root


@given(folder_name=FILE_NAME, python=FILE_NAME, env=ENV, argument=VALUE)
def test_every_value_reaches_the_agents_as_it_is(
    folder_name: str, python: str, env: dict[str, str], argument: str
) -> None:
    """Checks refuse most of these names, since ray.sub does not quote; what jobspec writes does."""
    with tempfile.TemporaryDirectory() as scratch:
        stage, root = stage_of(Path(scratch))
        interpreter = stage.program(f"venv/{python}")
        run_dir = Path(scratch) / folder_name.replace("\\", "_").replace("\n", "_").replace("\r", "_")
        run_dir.mkdir()
        command = CommandPlan("train", ("train", argument))
        plan = upstream_plan(root, str(interpreter), env=env, commands=(command,))
        files = render(as_resolved(plan), RUN_ID, str(run_dir))
        assert check_scripts(files) == ()
        done = stage.bash(written(run_dir, files) / "job.sbatch", env=JOB)
        assert done.returncode == 0, done.stderr.decode()
        assert stage.canaries() == []
        agents = [call for call in stage.calls() if call.argv[0] == str(interpreter).encode()]
        logs = sorted(path.name for path in (run_dir / "attempts/1/logs").rglob("setup*"))
    tail = (f"{run_dir}/runtime.pyz", "{}", "--run-dir", str(run_dir))
    for call, entry in zip(agents, ("upstream-setup", "upstream"), strict=True):
        assert call.argv[1:] == tuple(
            word.format(entry).encode() if word == "{}" else word.encode() for word in tail
        )
        assert {k: call.env[k.encode()] for k in env} == {k: v.encode() for k, v in env.items()}
        assert call.env[b"JOBSPEC_HOSTS"] == b"n1 n2"
        assert (call.env[b"JOBSPEC_JOB_ID"], call.env[b"XSECRET"]) == (b"7", b"s3cret")
        assert not [name for name in call.env if name.startswith(b"SLURM_")]
    assert from_json(files["plan.json"].decode()).commands == (command,)
    assert b"s3cret" not in b"".join(files.values())
    assert logs == ["setup.log", "setup_command.sh"]


def test_the_script_runs_in_its_checkout_with_what_it_asks_for(tmp_path: Path) -> None:
    stage, root = stage_of(tmp_path)
    interpreter = stage.program("venv/python")
    env = {"LOG_DIR": "${JOBSPEC_METRICS_DIR}/x", "COMMAND": "not this one"}
    plan = upstream_plan(root, str(interpreter), env=env)
    files = render(as_resolved(plan), RUN_ID, str(tmp_path / "run"))
    (tmp_path / "run").mkdir()
    done = stage.bash(written(tmp_path / "run", files) / "job.sbatch", env=JOB)
    assert done.returncode == 0, done.stderr.decode()
    (call,) = [call for call in stage.calls() if call.argv[0].endswith(b"/record")]
    assert call.argv[1:] == (str(root).encode(), str(root).encode(), b"ann")
    shown = {name: call.env[name.encode()].decode() for name in (*OURS, "DEDICATED_RAY_HEAD")}
    run_dir = tmp_path / "run"
    assert shown["MOUNTS"] == f"/data:/data:ro,{run_dir}:{run_dir}"
    assert (shown["CONTAINER"], shown["GPUS_PER_NODE"]) == ("registry.example.com#nvidia/x:1", "1")
    assert (shown["CPUS_PER_WORKER"], shown["DEDICATED_RAY_HEAD"]) == ("12", "1")
    assert shown["BASE_LOG_DIR"] == f"{run_dir}/attempts/1/logs"
    assert shown["COMMAND"].startswith("set -eo pipefail\n")
    assert len(call.env[b"RAY_AUTH_TOKEN"]) == 64
    assert b"LOG_DIR" not in call.env  # only an agent knows that folder


def test_a_failed_setup_leaves_its_status_and_output(tmp_path: Path) -> None:
    stage, root = stage_of(tmp_path)
    interpreter = stage.program(
        "venv/python", then="echo no such module; [[ $2 != upstream-setup ]] || exit 9"
    )
    (root / "ray.sub").write_text(
        SCRIPT.replace('setup_command.sh"\nbash', 'setup_command.sh" || true\nbash')
    )
    run_dir = tmp_path / "run"
    run_dir.mkdir()
    files = render(as_resolved(upstream_plan(root, str(interpreter))), RUN_ID, str(run_dir))
    stage.bash(written(run_dir, files) / "job.sbatch", env=JOB)
    (failed,) = (run_dir / "attempts/1/logs").glob("*/setup.failed")
    assert failed.read_text() == "9\n"
    assert failed.with_name("setup.log").read_text() == "no such module\n"


@pytest.mark.parametrize(("exclusive", "removed"), [(True, True), (False, False)])
def test_old_containers_are_removed_on_nodes_of_our_own(exclusive: bool, removed: bool) -> None:
    """ray.sub's container names are fixed: pyxis would take an older run's container for this image."""
    plan = dataclasses.replace(upstream_plan("/src/RL", "python3"), slurm=SlurmPlan(exclusive=exclusive))
    job = render(as_resolved(plan), RUN_ID, "/runs/x")["job.sbatch"].decode()
    assert ("pyxis_$name" in job) is removed


SPEC = """\
version: 1
name: up
framework: command
launch: {mode: upstream}
container: {image: "registry.example.com#nvidia/x:1"}
repos: [{name: rl, path: RL}]
train: {command: [x]}
"""
PROFILE = """\
version: 1
name: lab
scheduler: slurm
node: {gpus: 8}
container: {runtime: pyxis}
paths: {runs: /shared/runs}
"""


@pytest.mark.parametrize("with_script", [True, False])
def test_a_checkout_with_the_script_offers_the_mode(with_script: bool, tmp_path: Path) -> None:
    (tmp_path / "RL").mkdir()
    if with_script:
        (tmp_path / "RL/ray.sub").write_text("")
    resolved = resolve_text(SPEC, PROFILE, tmp_path)
    errors = {finding.rule for finding in resolved.findings if finding.is_error}
    assert ("launch.upstream-unsupported" in errors) is not with_script
    if with_script:
        assert resolved.plan is not None and resolved.plan.upstream == UpstreamPlan(str(tmp_path / "RL"))
        assert resolved.plan.ray is None and resolved.plan.slurm.exclusive
        assert Mount(str(tmp_path / "RL"), str(tmp_path / "RL")) in resolved.plan.container.mounts


def test_a_checkout_that_has_lost_its_script_is_an_error(tmp_path: Path) -> None:
    plan = upstream_plan(tmp_path, "python3")
    assert [finding.rule for finding in missing_script(plan)] == ["launch.upstream-unsupported"]
    (tmp_path / "ray.sub").write_text("")
    assert missing_script(plan) == ()
    assert missing_script(upstream_plan("/not/here", "python3")) == ()  # it lies on the cluster alone
