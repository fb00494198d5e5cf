"""The example adapter of CONTRIBUTING.md: the page's own text, installed, checked and run."""

from __future__ import annotations

import json
import os
import re
import subprocess
import tomllib
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any

import pytest

from jobspec import frameworks
from jobspec.verdict import Status
from tests.kits.chain_kit import PROGRAM
from tests.kits.framework_kit import context, evidence, findings, plan_of, table

ROOT = Path(__file__).parents[2]
TOY = Path(__file__).with_name("toy")
PAGE = (ROOT / "CONTRIBUTING.md").read_text("utf-8")
BLOCKS = re.findall(r"^```(\w+)\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)


# -- the page ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["toy_framework.py", "toy_train.py"])
def test_the_page_shows_the_file_as_it_is(name: str) -> None:
    assert ("python", (TOY / name).read_text("utf-8")) in BLOCKS, f"copy {name} into CONTRIBUTING.md"


def test_the_page_registers_it_as_it_is_registered() -> None:
    (text,) = (text for kind, text in BLOCKS if kind == "toml")
    named = tomllib.loads(text)["project"]["entry-points"]
    installed = {point.name: point.value for point in entry_points(group=frameworks.GROUP)}
    assert named == {frameworks.GROUP: {"toy": installed["toy"]}}


def test_it_is_a_plug_in() -> None:
    assert "toy" not in frameworks.BUILT_IN
    assert "toy" in frameworks.names()


# -- rules -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("level", "spec", "rule", "path"),
    [
        (0, {"train": {"overrides": {"rat": 1}}}, "toy.option", "train.overrides.rat"),
        (0, {"train": {"overrides": {"rate": "fast"}}}, "toy.value", "train.overrides.rate"),
        (0, {"train": {"overrides": {"arms": 2.5}}}, "toy.value", "train.overrides.arms"),
        (0, {"train": {"overrides": {"steps": 3}}}, "toy.owned", "train.overrides.steps"),
        (0, {"model": {"id": "org/tiny"}}, "toy.unused-key", "model"),
        (0, {"coverage": {"variants": ["lora"]}}, "toy.variant", "coverage.variants[0]"),
        (1, {"train": {"steps": 3}}, "toy.steps", "train.steps"),
    ],
)
def test_a_mistake_is_named(level: int, spec: dict[str, Any], rule: str, path: str) -> None:
    assert [(one.rule, one.path) for one in findings("toy", level, **spec)] == [(rule, path)]


def test_a_right_spec_is_left_alone() -> None:
    assert findings("toy", 1, train={"steps": 40, "overrides": {"arms": 2, "rate": 1}}) == []


# -- judge -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("share", "status"), [(0.51, Status.PASS), (0.5, Status.FAIL)])
def test_the_last_steps_share_decides(share: float, status: Status) -> None:
    plan = plan_of(context("toy", "learning"))
    found = frameworks.get("toy").judge(evidence(plan, table(best_arm={1: 0.9, 2: share})))
    assert {item.name: item.status for item in found}["Policy"] is status


# -- a real run --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "code", "result", "learning"),
    [
        ((), 0, "Pass", "Pass"),
        (("--set", "train.overrides.rate=0.001"), 1, "Fail", "Fail"),
    ],
)
def test_run_to_its_verdict(
    tmp_path: Path, options: tuple[str, ...], code: int, result: str, learning: str
) -> None:
    (text,) = (text for kind, text in BLOCKS if kind == "yaml")
    (tmp_path / "toy.yaml").write_text(text)
    env = {**os.environ, "PYTHONPATH": str(TOY), "HOME": str(tmp_path)}
    done = subprocess.run(
        [str(PROGRAM), "run", "toy.yaml", *options],
        cwd=tmp_path,
        env=env,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == code, done.stdout + done.stderr
    (run,) = (tmp_path / "runs/toy").iterdir()
    report = json.loads((run / "report.json").read_text())
    assert report["result"] == result
    told = {name: item["status"] for name, item in report["deliverables"].items()}
    assert (told["Run"], told["Training"], told["Learning"]) == ("Pass", "Pass", learning)
