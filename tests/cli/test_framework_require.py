"""`framework require`: what a real change of a real checkout asks for, by file and by line."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from jobspec.frameworks import get
from jobspec.frameworks.nemo_rl.levels import BY_NAME
from jobspec.frameworks.required_when import rules_of
from tests.kits.project_kit import Project

SRC = "src/megatron/bridge"
PROVIDER = f"{SRC}/models/gemma/gemma_provider.py"


@pytest.fixture
def bridge(project: Project) -> Path:
    root = project.root / "bridge"
    root.mkdir()
    _git(root, "init", "-q", "-b", "main")
    _change(root, PROVIDER, "x = 1\n")
    _change(root, f"{SRC}/peft/lora.py", "x = 1\n")
    _git(root, "add", ".")
    _git(root, *WHO, "commit", "-qm", "one")
    _git(root, "checkout", "-qb", "work")
    return root


WHO = ("-c", "user.name=a", "-c", "user.email=a@example.org")


def _git(root: Path, *words: str) -> None:
    subprocess.run(["git", *words], cwd=root, check=True)


def _change(root: Path, name: str, text: str) -> None:
    (root / name).parent.mkdir(parents=True, exist_ok=True)
    (root / name).write_text(text)


def _asked(project: Project, framework: str = "nemo_rl") -> list[tuple[int, str, list[str]]]:
    found = project.cli("framework", "require", framework, "--repo", "bridge", "--json").json
    return [(need["level"], need["variant"], need["asked_by"]) for need in found["needs"]]


def test_each_kind_of_change_asks_for_its_level(project: Project, bridge: Path) -> None:
    assert _asked(project) == []
    _change(bridge, PROVIDER, "x = 1\nself.sequence_parallel = True\n")  # uncommitted
    assert _asked(project) == [(0, "colocated", [PROVIDER]), (4, "tp2-sp", [PROVIDER])]
    assert _asked(project, "verl") == [(0, "", [PROVIDER]), (2, "dense", [PROVIDER])]
    _git(bridge, *WHO, "commit", "-qam", "two")
    _change(bridge, f"{SRC}/peft/lora.py", "x = 2\n")
    _change(bridge, f"{SRC}/models/conversion/new file.py", "")  # untracked
    _change(bridge, "tests/unit_tests/peft/test_context_parallel.py", "context_parallel_size = 2\n")
    _change(bridge, f"{SRC}/recipes/gemma/gemma.py", "context_parallel_size = 2\n")
    peft, export = f"{SRC}/peft/lora.py", f"{SRC}/models/conversion/new file.py"
    assert [(level, variant) for level, variant, _ in _asked(project)] == [
        (0, "colocated"), (1, "lora"), (1, "resume"), (2, "non-colocated"), (4, "tp2-sp"),
        (6, "lora-learning"),
    ]  # fmt: skip
    assert {variant: files for _, variant, files in _asked(project)}["resume"] == [export]
    assert (1, "save-resume", [peft, export]) in _asked(project, "verl")


@pytest.mark.parametrize("framework", ["nemo_rl", "verl"])
def test_the_written_spec_has_these_levels(project: Project, bridge: Path, framework: str) -> None:
    _change(bridge, PROVIDER, "expert_model_parallel_size = context_parallel_size = 2\n")
    _change(bridge, f"{SRC}/peft/lora.py", "x = 2\n")
    words = ("framework", "require", framework, "--repo", bridge, "--spec", "out.yaml")
    done = project.cli(*words)
    assert done.code == 0 and "written: out.yaml" in done.out and PROVIDER in done.out
    nodes = "not in it: level 4 `ep` needs 2 nodes"
    assert (nodes in done.out) == (framework == "nemo_rl")
    values = project.cli("explain", "out.yaml", "--json").json
    asked = [
        item for key, (item) in sorted(values.items()) if key.startswith("sweep.list[") and ".level" in key
    ]
    expected = {
        "nemo_rl": ["smoke", "lora", "parallel", "learning"],
        "verl": ["smoke", "checkpoint", "parallel", "parallel", "learning"],
    }
    assert [item["value"] for item in asked] == expected[framework]
    again = project.cli(*words)
    assert again.code == 2 and "is there already" in again.text
    told = project.cli(*words[:-1], "more.yaml", "--json").json
    left_out = [(need["level"], need["variant"]) for need in told["not_in_spec"]]
    assert told["spec"] == "more.yaml" and left_out == ([(4, "ep")] if framework == "nemo_rl" else [])


def test_what_cannot_be_compared_is_told(project: Project, bridge: Path) -> None:
    for words, word in (
        (("nemo_rl", "--repo", project.root), "is no git checkout"),
        (("nemo_rl", "--repo", bridge, "--since", "nosuch"), "no commit `nosuch` in common"),
        (("trl", "--repo", bridge), "no guide says which changes"),
    ):
        done = project.cli("framework", "require", *words)
        assert done.code != 0 and word in done.text


@pytest.mark.parametrize("framework", ["nemo_rl", "verl"])
def test_rules_name_variants_as_the_framework_has_them(framework: str) -> None:
    levels = {level.number: level for level in get(framework).levels}
    for rule in rules_of(framework):
        assert rule.variant in (*levels[rule.level].variants, *([""] if framework == "verl" else []))
        assert rule.files or rule.lines
        if framework == "nemo_rl":
            variant = BY_NAME[rule.variant]
            assert (rule.gpus, rule.nodes) == (variant.gpus * max(variant.nodes, 1), max(variant.nodes, 1))
