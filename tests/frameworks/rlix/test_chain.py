"""Framework `rlix` through the whole chain on this machine: real bash, git, Ray; stand-in checkouts."""

from __future__ import annotations

import json
from pathlib import Path

from tests.kits.chain_kit import MARKS, Chain, rlix_inputs, run_chain

pytestmark = MARKS


def run(folder: Path, fault: str = "", **overrides: int) -> Chain:
    """Two pipelines on two GPUs. RLix reserves four CPUs for each GPU, as Ray counts them."""
    spec = {**rlix_inputs(folder), "resources": {"gpus_per_node": 2, "cpus_per_node": 12}}
    spec["train"]["overrides"].update(overrides)
    return run_chain(folder, spec, gpus=2, env={"FAKE_RLIX": fault})


def test_two_pipelines_share_the_gpus_and_pass(tmp_path: Path) -> None:
    done = run(tmp_path)
    assert done.result == (0, "Pass"), (done.told, done.report.get("reason"))
    own = ("Run", "Training", "Weight version", "GPU time-sharing")
    asked = [f"{name}: {part}" for name in ("one", "two") for part in own]
    assert {done.told[name] for name in (*asked, "two: Required metrics", "Pipelines")} == {"Pass"}
    assert done.told["GPUs shared between pipelines"] == "Pass"
    kept = (done.folder / "artifacts/rlix/configs/two.yaml").read_text()
    assert kept in json.loads((done.folder / "plan.json").read_text())["commands"][1]["argv"][0]
    assert not Path("/tmp/rlix").exists(), "the link to the run's cache and the pipelines' folders are gone"
    assert len((done.folder / "attempts/1/rlix/made").read_text().split()) == 2
    page = (done.folder / "report.html").read_text()
    for curve in ("one reward", "two reward"):
        assert f"<figcaption>{curve}" in page, curve


def test_first_pipeline_that_breaks_is_told_of_at_once(tmp_path: Path) -> None:
    """RLix's driver would wait a quarter of an hour for its first step."""
    done = run(tmp_path, "crash:one", admit_delay_s=900)
    assert done.result == (3, "Blocked"), done.told  # out of memory before any step: too large, not wrong
    runs = {name: done.report["deliverables"][f"{name}: Run"]["reason"] for name in ("one", "two")}
    error = "RuntimeError: CUDA error: out of memory in sleep_partial"
    assert f"the pipeline broke before its first train step: {error}" in runs["one"]
    assert "the run ended before the pipeline returned, since `one` broke" in runs["two"]
    assert done.report["first_cause"]["text"] == error
    assert not Path("/tmp/rlix").exists()


def test_pipeline_that_fails_does_not_hide_behind_the_other(tmp_path: Path) -> None:
    """RLix's driver exits with 0: one of two succeeded."""
    done = run(tmp_path, "crash:two")
    told = done.told
    assert done.result == (1, "Fail"), told
    assert (told["Run"], told["one: Run"], told["one: Training"]) == ("Pass", "Pass", "Pass"), told
    assert (told["two: Run"], told["Pipelines"]) == ("Fail", "Fail")
    assert "out of memory in sleep_partial" in done.report["first_cause"]["text"]
