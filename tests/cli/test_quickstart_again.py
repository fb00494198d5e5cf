"""The quickstart, of a checkout that nobody else has, made again after it is gone."""

from __future__ import annotations

import shutil
import subprocess
import sys

import pytest

from tests.kits.checkout_kit import git
from tests.kits.project_kit import Project
from tests.slurm.machine import CHECKOUT

pytestmark = [pytest.mark.ray, pytest.mark.train, pytest.mark.slow, pytest.mark.timeout(480)]


def test_quickstart_after_its_checkout_is_gone(project: Project) -> None:
    work = project.root / "work"
    shutil.copytree(CHECKOUT / "examples", work, ignore=shutil.ignore_patterns(".*", "__pycache__"))
    subprocess.run([sys.executable, work / "make_tiny_model.py"], check=True, capture_output=True)
    shutil.move(work / ".cache", project.root / "cache")  # the model is no code, and stays
    git(work, "init", "-q", "-b", "main")
    git(work, "add", ".")
    git(work, "commit", "-qm", "never pushed")
    source = work / "rewards" / "tiny_rewards.py"
    source.write_text(source.read_text() + "\nREPEATED = True\n")
    # Small and short: what is made again counts here, not what is learned.
    steps = ("--set", "train.steps=2", "--set", "coverage.level=smoke", "--set", "checkpoint.every=2")
    steps += ("--set", "train.workers=1", "--set", "train.overrides.per_device_train_batch_size=8")
    ends = ("--set", "metrics={}", "--set", "artifacts={}", "--set", f"hf_cache.home={project.root}/cache/hf")
    done = project.cli("run", work / "quickstart.yaml", *steps, *ends)
    assert done.code == 0, done.text
    shutil.rmtree(work)
    again = project.cli("reproduce", "last", "--watch")
    assert again.code == 0, again.text
    assert not work.exists()
    (folder,) = (project.root / "runs" / ".checkouts").glob("rewards-*-????????")
    assert "REPEATED" in (folder / "rewards" / "tiny_rewards.py").read_text()
    found = project.cli("report", "last", "--format", "json").json["reproduction"]
    rows = {row["name"]: row for row in found["rows"]}
    assert (rows["verdict"]["now"], rows["verdict"]["word"], found["problem"]) == ("Pass", "same", "")
    assert rows["metric reward"]["word"] in ("same", "can't tell")
