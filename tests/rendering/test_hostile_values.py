"""Hostile values in every free text: each arrives byte for byte in real bash, and none is executed."""

from __future__ import annotations

import dataclasses
import itertools
import re
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jobspec.plan import CommandPlan, ContainerPlan, Mount, Plan, from_json
from jobspec.planning.container import with_mount
from jobspec.planning.resolve import Resolved
from jobspec.rendering.files import render
from jobspec.rendering.script_check import check_scripts
from jobspec.rendering.step_prefix import RUNTIMES, step_prefix
from jobspec.rendering.steps import WAIT_FOR_AGENT
from jobspec.spec.interpolate import escape_data
from jobspec.spec.yaml.dump import dump_spec
from tests.kits.render_kit import LOCAL, RUN_ID, SLURM, Call, Stage, resolve_text

pytestmark = pytest.mark.usefixtures("no_reports")
CANARY = "canary"
HOSTILE = st.sampled_from(
    [
        f"$(touch {CANARY})", f"`touch {CANARY}`", f"; touch {CANARY};", f"\ntouch {CANARY}\n",
        f"' ; touch {CANARY} ; '", f'" ; touch {CANARY} ; "', f"a && touch {CANARY}", f"| touch {CANARY}",
        f"$HOME ${{PATH}} $0 <(touch {CANARY})", '{"a": [1, "two", null], "b": {"c": "d"}}', "EOF\nEOF",
        "--flag", "-rf", "--", "-", "", " ", "\t", "a  b", "end\n", "ä ü 日 🙂", "\\", "\\\\n", "a\\'b",
        "*", "?[a-z]", "~root", "!history", "#hash", "a=b", "%j", "{a,b}", "\x01\x1b[31m", "\u2028",
    ]
)  # fmt: skip
ANY_TEXT = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=20)
VALUE = st.one_of(HOSTILE, st.tuples(HOSTILE, ANY_TEXT, HOSTILE).map("".join))
FILE_NAME = VALUE.map(lambda text: text.replace("/", "_").strip("\n")[:40]).filter(
    lambda text: text not in ("", ".", "..")
)
NAME = st.from_regex(r"X[A-Za-z0-9_]{0,8}", fullmatch=True)
ENV = st.dictionaries(NAME, VALUE, max_size=3)

CONTAINER = st.builds(
    ContainerPlan,
    runtime=st.sampled_from(sorted(RUNTIMES)),
    image=VALUE.map("/".__add__),
    python=VALUE.map("python".__add__),
    mounts=st.lists(st.builds(Mount, VALUE, VALUE, st.booleans()), max_size=2).map(tuple),
    env=ENV,
    workdir=VALUE,
    mount_home=st.booleans(),
    remap_root=st.sampled_from([None, True, False]),
)
COMMAND = st.builds(
    CommandPlan,
    name=VALUE,
    argv=st.lists(VALUE, max_size=3).map(lambda args: ("record", *args)),
    env=ENV,
    on=st.sampled_from(["head", "all"]),
)


def as_resolved(plan: Plan) -> Resolved:
    """A resolution that holds this plan; everything else is of no interest to the scripts."""
    return dataclasses.replace(
        resolve_text("version: 1\nname: x\nframework: command\ntrain: {command: [x]}\n"), plan=plan
    )


def written(folder: Path, files: Mapping[str, bytes]) -> Path:
    for name in files:
        (folder / name).write_bytes(files[name])
    return folder


def the_step(calls: Sequence[Call]) -> Call:
    """The step's own start among those of srun: the one that runs the agent."""
    return next(call for call in calls if b"node" in call.argv)


@given(container=CONTAINER, folder_name=FILE_NAME)
def test_slurm_scripts_pass_every_value_on(container: ContainerPlan, folder_name: str) -> None:
    with tempfile.TemporaryDirectory() as scratch:
        stage = Stage(Path(scratch) / "stage")
        for program in ("srun", "scontrol"):
            stage.program(program)
        run_dir = Path(scratch) / "runs" / re.sub(r"[\\\n\r]", "_", folder_name)  # what no directive can hold
        run_dir.mkdir(parents=True)
        plan = Plan(
            "x",
            "command",
            "lab",
            "slurm",
            "ray",
            nodes=2,
            container=container,
            env=container.env,
            secrets=("XSECRET",),
        )
        files = render(as_resolved(plan), RUN_ID, str(run_dir))
        assert check_scripts(files) == ()
        env = {"SLURM_JOB_NODELIST": "n[1-2]", "SLURM_JOB_ID": "7", "XSECRET": "s3cret"}
        done = stage.bash(written(run_dir, files) / "job.sbatch", env=env)
        assert done.returncode == 0, done.stderr.decode()
        assert stage.canaries() == []
        step = the_step(stage.calls())
    visible = with_mount(container, str(run_dir))
    prefix = step_prefix(visible, f"jobspec-{RUN_ID}_1", (*sorted(container.env), *plan.secrets), 0)
    agent = [container.python, "-c", WAIT_FOR_AGENT]
    words = [
        *prefix.flags,
        *prefix.words,
        *agent,
        f"{run_dir}/runtime.pyz",
        "node",
        "--run-dir",
        str(run_dir),
    ]
    assert step.argv[-len(words) :] == tuple(word.encode() for word in words)
    assert {k: step.env[k.encode()] for k in container.env} == {
        k: v.encode() for k, v in container.env.items()
    }
    assert step.env[b"JOBSPEC_RUN_DIR"] == str(run_dir).encode()
    assert step.env[b"XSECRET"] == b"s3cret"
    assert b"s3cret" not in b"".join([*step.argv, *files.values()])


@given(folder_name=FILE_NAME, python=FILE_NAME, env=ENV)
def test_a_local_run_passes_every_value_on(folder_name: str, python: str, env: dict[str, str]) -> None:
    with tempfile.TemporaryDirectory() as scratch:
        stage = Stage(Path(scratch) / "stage")
        interpreter = stage.program(f"venv/{python}")
        run_dir = Path(scratch) / folder_name
        run_dir.mkdir()
        container = ContainerPlan(python=str(interpreter), env=env)
        files = render(
            as_resolved(Plan("x", "command", "here", "local", "ray", container=container, env=env)),
            RUN_ID,
            str(run_dir),
        )
        assert check_scripts(files) == ()
        done = stage.bash(written(run_dir, files) / "job.sbatch")
        assert done.returncode == 0, done.stderr.decode()
        assert stage.canaries() == []
        (call,) = stage.calls()
    words = (str(interpreter), f"{run_dir}/runtime.pyz", "node", "--run-dir", str(run_dir))
    assert call.argv == tuple(word.encode() for word in words)
    assert {k: call.env[k.encode()] for k in env} == {k: v.encode() for k, v in env.items()}
    assert call.env[b"JOBSPEC_ATTEMPT"] == b"1"
    assert len(call.env[b"JOBSPEC_TOKEN"]) == 64


@given(commands=st.lists(COMMAND, max_size=3), env=ENV)
def test_driver_sh_runs_the_commands_of_the_plan(commands: list[CommandPlan], env: dict[str, str]) -> None:
    plan = Plan("x", "command", "here", "local", "ray", env=env, commands=tuple(commands))
    with tempfile.TemporaryDirectory() as scratch:
        stage = Stage(Path(scratch) / "stage")
        program = stage.program("record")
        files = render(as_resolved(plan), RUN_ID, "/runs/x")
        done = stage.bash(written(Path(scratch), files) / "driver.sh")
        assert done.returncode == 0, done.stderr.decode()
        assert stage.canaries() == []
        calls = stage.calls()
    assert [call.argv for call in calls] == [
        (str(program).encode(), *(arg.encode() for arg in command.argv[1:])) for command in commands
    ]
    for call, command in zip(calls, commands, strict=True):
        expected = {**env, **command.env}
        assert {k: call.env[k.encode()] for k in expected} == {k: v.encode() for k, v in expected.items()}


@given(args=st.lists(VALUE, min_size=1, max_size=3), env=ENV, prefix=st.sampled_from(["", "${", "$${"]))
def test_values_travel_from_the_spec_to_plan_and_script(
    args: list[str], env: dict[str, str], prefix: str
) -> None:
    """From YAML text: loader, resolution, lock and script agree on every byte."""
    command = ["record", *(prefix + arg for arg in args)]
    data = escape_data(
        {
            "version": 1,
            "name": "x",
            "framework": "command",
            "train": {"command": command},
            "container": {"env": env},
        }
    )
    resolved = resolve_text(dump_spec(data))
    assert resolved.plan is not None, [finding.text() for finding in resolved.findings]
    files = render(resolved, RUN_ID, "/runs/x")
    plan = from_json(files["plan.json"].decode())
    assert list(plan.commands[0].argv) == command
    assert dict(plan.container.env) == env
    again = resolve_text(files["spec.lock.yaml"].decode())
    assert again.plan == resolved.plan
    with tempfile.TemporaryDirectory() as scratch:
        stage = Stage(Path(scratch) / "stage")
        stage.program("record")
        done = stage.bash(written(Path(scratch), files) / "driver.sh")
        assert done.returncode == 0, done.stderr.decode()
        assert stage.canaries() == []
        (call,) = stage.calls()
    assert call.argv[1:] == tuple(word.encode() for word in command[1:])


@pytest.mark.parametrize(
    ("key", "text"),
    list(itertools.product(["account", "partition", "qos"], [f"$(>{CANARY})", 'a"b"c', "a#b", "ä"])),
)
def test_hostile_options_stay_comments_for_bash(key: str, text: str, stage: Stage, tmp_path: Path) -> None:
    """Directives are comments to bash; tests/rendering/test_quoting.py shows that sbatch reads them back."""
    profile = SLURM.replace("partition: main", dump_spec({key: text}).strip())
    resolved = resolve_text("version: 1\nname: x\nframework: command\ntrain: {command: [x]}\n", profile)
    stage.program("srun")
    done = stage.bash(written(tmp_path, render(resolved, RUN_ID, str(tmp_path))) / "job.sbatch")
    assert (done.returncode, stage.canaries()) == (0, [])


def test_the_local_profile_text_is_valid() -> None:
    assert (
        resolve_text("version: 1\nname: x\nframework: command\ntrain: {command: [x]}\n", LOCAL).plan
        is not None
    )
