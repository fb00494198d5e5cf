"""Extras that a project declares to conflict are refused before submission. Form: NeMo-RL's own file."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from jobspec.frameworks.nemo_rl.extras import conflict
from tests.kits.framework_kit import findings, make_fake_nemo_rl

PROJECT = """\
[project]
name = "nemo-rl"
[project.optional-dependencies]
mcore = []
vllm = []
[tool.uv]
conflicts = [
  [{ package = "nemo-rl", extra = "automodel" }, { package = "nemo-gym", extra = "vllm" }],
  [{ extra = "vllm" }, { extra = "mcore" }],
  [{ extra = "trtllm" }, { group = "test" }],
]
"""


@pytest.fixture
def root(tmp_path: Path) -> Path:
    make_fake_nemo_rl(tmp_path)
    (tmp_path / "pyproject.toml").write_text(PROJECT)
    return tmp_path


@pytest.mark.parametrize(
    ("command", "found"),
    [
        ("uv run --extra mcore --extra vllm pytest", ("vllm", "mcore")),
        ("/usr/bin/uv run --extra=vllm --extra=mcore pytest", ("vllm", "mcore")),
        ("uv sync --all-extras", ("vllm", "mcore")),
        ("uv run --extra mcore pytest", ()),
        ("uv run --extra automodel --extra vllm pytest", ()),  # the other one is another package's
        ("uv run --extra trtllm --extra mcore pytest", ()),
        ("python -m pytest --extra mcore --extra vllm", ()),
        ("uv run --extra", ()),
    ],
)
def test_conflict_is_found_where_uv_finds_it(root: Path, command: str, found: tuple[str, ...]) -> None:
    assert conflict(str(root), command.split()) == found


@pytest.mark.parametrize("text", ["", "[tool", "[tool.uv]\nconflicts = []\n"])
def test_project_without_conflicts_has_none(root: Path, text: str) -> None:
    (root / "pyproject.toml").write_text(text)
    assert conflict(str(root), ["uv", "run", "--extra", "mcore", "--extra", "vllm"]) == ()


def checks(root: Path, *command: str, **more: Any) -> list[str]:
    repos = {"nemo_rl": str(root), **more}
    coverage = {"checks": [{"repo": "nemo_rl", "tests": ["tests"], "command": list(command)}]}
    found = findings("nemo_rl", 0, repos=repos, coverage=coverage)
    return [f"{item.path}: {item.what}" for item in found if item.rule == "nemo_rl.extras"]


def test_checks_with_both_are_refused(root: Path) -> None:
    both = ("uv", "run", "--extra", "mcore", "--extra", "vllm", "pytest")
    assert checks(root, *both) == [
        "coverage.checks[0].command: `coverage.checks[0]` of `nemo_rl` asks uv for `vllm` and `mcore` at once"
    ]
    assert checks(root, "uv", "run", "--extra", "mcore", "pytest") == []
    assert checks(root) == []  # the default command asks for one


def test_the_project_that_the_command_names_counts(
    root: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    other = tmp_path_factory.mktemp("other")
    both = ("uv", "run", "--project", str(other), "--extra", "mcore", "--extra", "vllm", "pytest")
    assert checks(root, *both) == []
    (other / "pyproject.toml").write_text(PROJECT)
    assert len(checks(root, *both)) == 1


@pytest.mark.parametrize(("mark", "count"), [("", 1), ("# ", 0)])
def test_script_with_both_is_refused_and_a_comment_is_not(root: Path, mark: str, count: int) -> None:
    script = root / "tests/functional/grpo_megatron.sh"
    script.write_text(f"{mark}uv run --extra mcore \\\n --extra vllm true\n{script.read_text()}")
    found = findings("nemo_rl", 0, repos={"nemo_rl": str(root)})
    assert sum(item.rule == "nemo_rl.extras" for item in found) == count


def test_commands_that_replace_the_guides_are_looked_at_too(root: Path) -> None:
    both = ["uv", "run", "--extra", "mcore", "--extra", "vllm", "pytest"]
    coverage = {"checks_only": [{"repo": "nemo_rl", "tests": ["tests"], "command": both}]}
    found = findings("nemo_rl", 0, repos={"nemo_rl": str(root)}, coverage=coverage)
    assert [item.path for item in found if item.rule == "nemo_rl.extras"] == [
        "coverage.checks_only[0].command"
    ]
