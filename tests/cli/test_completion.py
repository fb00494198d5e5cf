"""Completion in real shells: what Tab offers, and that it neither says anything nor loads much."""

from __future__ import annotations

import os
import pty
import re
import subprocess
import sys
import time
from pathlib import Path

import pytest

from jobspec.cli.commands import command_names
from jobspec.cli.completing import build
from tests.frameworks.rlix.rlix_kit import CONFIG
from tests.kits.fake_rlix import make_fake_nemo_fork
from tests.kits.fake_skyrl import make_fake_skyrl
from tests.kits.fake_verl import make_checkout as make_verl
from tests.kits.programs_kit import needs
from tests.kits.project_kit import Project

ROOT = Path(__file__).parents[2]
HEAVY = {"torch", "ray", "rich", "jinja2", "paramiko", "submitit", "yaml"}


@pytest.fixture
def path(project: Project) -> str:
    """A PATH whose `jobspec` is this one."""
    program = project.root / "bin" / "jobspec"
    program.parent.mkdir()
    program.write_text(f'#!/bin/sh\nexec {sys.executable} -m jobspec.cli "$@"\n')
    program.chmod(0o755)
    return f"{program.parent}:{os.environ['PATH']}"


def bash(project: Project, path: str, line: str) -> list[str]:
    script = (
        "source <(jobspec completion bash); COMP_LINE=$1; COMP_POINT=${#1}; COMP_TYPE=9\n"
        '_python_argcomplete jobspec; printf "%s\\n" "${COMPREPLY[@]}"\n'
    )
    done = subprocess.run(
        ["bash", "-c", script, "bash", line],
        capture_output=True,
        text=True,
        check=True,
        cwd=project.root,
        env={**os.environ, "PATH": path},
    )
    assert done.stderr == ""
    return [word.strip() for word in done.stdout.splitlines()]


def test_bash_completes_what_the_line_asks_for(project: Project, path: str) -> None:
    assert project.cli("run", "hello.yaml").code == 0
    run_id = project.cli("status", "--json").json[0]["run_id"]
    (project.root / "trl.yaml").write_text("version: 1\nframework: trl\nname: [torn\n")
    project.write("thin.yaml", "base: hello.yaml\nvariants: {long: {}, short: {}}\n")
    want = {
        "jobspec run thin.yaml:": ["long", "short"],  # `:` ends a word in bash
        "jobspec sub": ["submit"],
        "jobspec submit --dry": ["--dry-run"],
        "jobspec cluster detect --na": ["--name"],
        "jobspec cluster show slurm-p": ["slurm-pyxis"],
        "jobspec submit --cluster slurm-g": ["slurm-generic"],
        "jobspec framework show sk": ["skyrl"],
        "jobspec validate trl.yaml --level ": ["smoke", "checkpoint", "learning"],
        "jobspec validate hello.yaml --level ": ["run"],
        "jobspec submit hello.yaml --allow repo.mis": ["repo.missing"],
        "jobspec submit hello.yaml --set train.st": ["train.steps="],
        "jobspec explain hello.yaml train.st": ["train.steps"],
        f"jobspec report {run_id[:12]}": [run_id],
        "jobspec report hel": ["hello"],
        "jobspec status --name ": ["hello"],
        "jobspec help triag": ["triage"],
        "jobspec validate hello.ya": ["hello.yaml"],
        "jobspec submit --nonsense": [""],
        "jobspec report 'torn": [""],
    }
    assert {line: bash(project, path, line) for line in want} == want


def test_bash_completes_choices_behind_the_equals_sign(project: Project, path: str) -> None:
    # `=` ends a word in bash: only what follows it is put in.
    assert bash(project, path, "jobspec submit hello.yaml --set framework=sk") == ["skyrl"]


def test_keys_of_overrides_are_those_of_the_installation_or_the_checkout(project: Project, path: str) -> None:
    checkouts = {"skyrl": make_fake_skyrl(project.root / "sky"), "verl": make_verl(project.root / "ver")}
    for name in ("trl", *checkouts):
        repos = f"repos: [{{name: {name}, path: {checkouts[name].name}}}]\n" if name in checkouts else ""
        project.write(f"{name}.yaml", f"version: 1\nname: x\nframework: {name}\n{repos}")
    make_fake_nemo_fork(project.root / "RL")
    repos = (
        "repos: [{name: nemo_rl, path: RL}]\npipelines: [{name: a, config: "
        + CONFIG
        + ", train_gpus: [0]}]\n"
    )
    project.write("rlix.yaml", f"version: 1\nname: x\nframework: rlix\n{repos}")
    want = {
        "rlix.yaml --set train.overrides.verify_m": ["train.overrides.verify_model_after_sync="],
        "rlix.yaml --set train.overrides.grpo.num_g": ["train.overrides.grpo.num_generations_per_prompt="],
        "trl.yaml --set train.overrides.num_generations_": ["train.overrides.num_generations_eval="],
        "skyrl.yaml --set train.overrides.trainer.train_b": ["train.overrides.trainer.train_batch_size="],
        "verl.yaml --set train.overrides.trainer.total_ep": ["train.overrides.trainer.total_epochs="],
        "hello.yaml --set train.overrides.a": [""],
    }
    assert {line: bash(project, path, f"jobspec submit {line}") for line in want} == want


@needs("fish")
def test_fish_completes_with_descriptions(project: Project, path: str) -> None:
    script = (
        "jobspec completion fish | source; complete -C 'jobspec sub'; complete -C 'jobspec cluster show loc'"
    )
    done = subprocess.run(
        ["fish", "--no-config", "-c", script],
        capture_output=True,
        text=True,
        check=True,
        cwd=project.root,
        env={**os.environ, "PATH": path},
    )
    assert (done.stdout.splitlines(), done.stderr) == (
        ["submit\trender a spec and start it", "local\tshipped"],
        "",
    )


@needs("zsh")
def test_zsh_completes_at_tab(project: Project, path: str) -> None:
    child, screen = pty.fork()
    if child == 0:
        os.chdir(project.root)
        os.execvpe("zsh", ["zsh", "-f", "-i"], {**os.environ, "PATH": path, "TERM": "dumb", "PS1": "> "})
    try:
        os.write(
            screen, b"autoload -U compinit; compinit -u -D; source <(jobspec completion zsh); echo re''ady\n"
        )
        assert "ready" in _until(screen, "\nready")
        os.write(screen, b"jobspec cluster show slurm-py\t")
        assert "slurm-pyxis" in _until(screen, "slurm-pyxis")
        os.write(screen, b"\x03")
    finally:
        os.kill(child, 9)
        os.waitpid(child, 0)
        os.close(screen)


def _until(screen: int, text: str) -> str:
    """What the shell shows until `text` is there."""
    shown = ""
    end = time.monotonic() + 60
    while text not in shown and time.monotonic() < end:
        shown += os.read(screen, 4096).decode(errors="replace").replace("\r", "")
    return re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", shown)


def test_every_command_has_a_parser_to_complete_with() -> None:
    build(command_names())


@pytest.mark.parametrize("line", ["jobspec sub", "jobspec submit --allow rep", "jobspec report "])
def test_completion_loads_nothing_heavy(project: Project, line: str) -> None:
    code = (
        "import os, sys\nend = os._exit\n"
        "def tell(code):\n    print(*sys.modules, file=sys.__stderr__, flush=True)\n    end(code)\n"
        "os._exit = tell\nsys.argv = ['jobspec']\nfrom jobspec.cli import main\nmain()\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        check=False,
        cwd=project.root,
        env={
            **os.environ,
            "_ARGCOMPLETE": "1",
            "_ARGCOMPLETE_STDOUT_FILENAME": str(project.root / "out"),
            "COMP_LINE": line,
            "COMP_POINT": str(len(line)),
        },
    )
    assert done.returncode == 0
    assert "argcomplete" in done.stderr.split()
    assert not HEAVY & set(done.stderr.split())


def test_a_line_that_is_not_completed_does_not_load_argcomplete() -> None:
    code = "import sys; from jobspec.cli import main; main(['--help']); print('argcomplete' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.endswith("False\n")
