"""The examples of verl on stand-in checkouts, their data maker, and the starter."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from jobspec.cli.commands.init import starter
from jobspec.planning.resolve import Resolved, resolve
from jobspec.spec.find_site import load_cluster
from jobspec.spec.load import load_spec
from tests.kits.fake_verl import make_bridge, make_checkout
from tests.kits.script_module import load_script

ROOT = Path(__file__).parents[3]
SPECS = sorted((ROOT / "examples/verl").glob("*.yaml"))
NUMBERED = [path for path in SPECS if path.stem != "tiny"]
LEVELS = ["smoke", "checkpoint", "parallel", "fsdp", "architecture", "learning"]
MAKER = ROOT / "examples/make_tiny_gsm8k.py"


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A home folder with both checkouts as git repositories."""
    home = tmp_path_factory.mktemp("home")
    make_checkout(home / "src/verl", "0.9.0", commit=True)
    make_bridge(home / "src/Megatron-Bridge", commit=True)
    return home


@pytest.fixture(scope="module")
def maker() -> ModuleType:
    return load_script(MAKER)


def resolved(path: Path, home: Path) -> Resolved:
    env = {"USER": "u", "HOME": str(home)}
    cluster = "local" if path.stem == "tiny" else "slurm-pyxis"
    return resolve(load_spec(path, env=env), load_cluster(cluster, None, env=env), env=env)


def wrong(found: Resolved) -> list[str]:
    """Errors, but for models and data that were not staged here."""
    return [f"{f.rule}: {f.what}" for f in found.findings if f.is_error and not f.rule.startswith("stage.")]


@pytest.mark.parametrize("path", SPECS, ids=lambda path: path.stem)
def test_example_plans(path: Path, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(home))
    found = resolved(path, home)
    assert wrong(found) == []
    assert found.plan is not None
    assert found.plan.expect.level == ("learning" if path.stem == "tiny" else LEVELS[int(path.stem[5])])
    assert [proof.module for proof in found.plan.proofs] == ["megatron.bridge", "verl"]
    assert found.plan.commands[0].name == "probe"


@pytest.mark.parametrize("path", SPECS, ids=lambda path: path.stem)
def test_example_says_how_to_run_it(path: Path) -> None:
    text = path.read_text()
    assert text.splitlines()[0] == "# yaml-language-server: $schema=../../jobspec/spec/job.schema.json"
    assert f"#   jobspec run examples/verl/{path.name}" in text


def test_every_level_has_an_example() -> None:
    assert {int(path.stem[5]) for path in NUMBERED} == set(range(6))


def test_starter_plans(home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(home))
    path = tmp_path / "mine.yaml"
    text = starter("verl", "mine").replace("  # image: ", "  image: ").replace("  # time: ", "  time: ")
    path.write_text(text)
    assert wrong(resolved(path, home)) == []


# -- data --------------------------------------------------------------------------------------------


def read(path: Path) -> list[dict[str, Any]]:
    parquet = pytest.importorskip("pyarrow.parquet")
    rows: list[dict[str, Any]] = parquet.read_table(path).to_pylist()
    return rows


def test_rows_have_the_columns_that_verl_reads(maker: ModuleType, tmp_path: Path) -> None:
    train, test = maker.write(tmp_path, train=40, test=8, seed=1)
    rows = read(train)
    assert (len(rows), len(read(test))) == (40, 8)
    for row in rows:
        assert list(row) == ["data_source", "prompt", "ability", "reward_model", "extra_info"]
        assert row["data_source"] == "openai/gsm8k"  # verl's rule reward knows it by this name
        assert [turn["role"] for turn in row["prompt"]] == ["user"]
        assert row["reward_model"]["style"] == "rule"
        # The rule takes what follows `#### ` in the answer, without commas.
        assert row["extra_info"]["answer"].split("#### ")[1] == row["reward_model"]["ground_truth"]
        assert '"####"' in row["prompt"][0]["content"]


def test_same_arguments_same_rows(maker: ModuleType) -> None:
    assert maker.rows("train", 5, 1) == maker.rows("train", 5, 1)
    assert maker.rows("train", 5, 1) != maker.rows("train", 5, 2)
    assert maker.rows("train", 5, 1) != maker.rows("test", 5, 1)


def test_missing_pyarrow_is_said(tmp_path: Path) -> None:
    (tmp_path / "pyarrow.py").write_text("raise ImportError('none here')\n")
    argv = [sys.executable, str(MAKER), str(tmp_path / "out")]
    done = subprocess.run(argv, env={"PYTHONPATH": str(tmp_path)}, capture_output=True, text=True)
    assert done.returncode == 2
    assert "pyarrow is needed" in done.stderr
