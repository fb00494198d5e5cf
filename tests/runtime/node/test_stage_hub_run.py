"""Whole runs whose nodes download their model from a hub on this machine, by real agents."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from jobspec.plan import HUB_TOKEN, CommandPlan, StagePlan
from tests.kits.agent_lab import Run, running, shell
from tests.kits.hub_lab import COMMIT, HubLab
from tests.kits.pythons import PYTHON39, needs_python39
from tests.runtime.staging.stage_kit import safetensors

SIZE = 24 << 20
FILES = {"model.safetensors": safetensors(SIZE), "config.json": b"{}\n", "tokenizer.json": b"{}"}
TOTAL = sum(map(len, FILES.values()))
TOKEN = "hf_of_the_account_that_may"
SHOW = (
    'sha256sum "$JOBSPEC_MODEL_PATH"/model.safetensors > "$JOBSPEC_RUN_DIR/sum-$NODE_RANK"; '
    'env > "$JOBSPEC_RUN_DIR/env-$NODE_RANK"'
)


@pytest.fixture
def lab() -> Iterator[HubLab]:
    made = HubLab(FILES, token=TOKEN)
    yield made
    made.close()


def plan_fields(lab: HubLab, nodes: int) -> dict[str, Any]:
    item = StagePlan(
        "model", "model", "models--acme--tiny", repo_id="acme/tiny", revision=COMMIT, from_hub=True
    )
    return {
        "nodes": nodes,
        "stage": (item,),
        "stage_secrets": (HUB_TOKEN,),
        "env": {"HF_ENDPOINT": lab.url},
    }


def everywhere() -> CommandPlan:
    return shell(SHOW, on="all")


def go(run: Run, python: str = sys.executable) -> tuple[int, str]:
    for index in range(run.plan.nodes):
        run.agent(index, env={HUB_TOKEN: TOKEN}, python=python)
    return run.finish()


def test_every_node_has_it_and_it_leaves_the_hub_once(lab: HubLab, tmp_path: Path) -> None:
    with running(tmp_path, everywhere(), **plan_fields(lab, 2)) as run:
        status, output = go(run)
        assert (status, run.rules()) == (0, []), output + run.describe()
        for process in run.agents[1:]:
            process.communicate(timeout=60)
    assert lab.sent == TOTAL
    expected = lab.etag("model.safetensors")
    sums = [(run.root / f"sum-{index}").read_text().split()[0] for index in range(2)]
    assert sums == [expected, expected]


def test_token_is_for_staging_alone_and_training_is_offline(lab: HubLab, tmp_path: Path) -> None:
    with running(tmp_path, everywhere(), **plan_fields(lab, 1)) as run:
        status, output = go(run)
    assert status == 0, output
    env = (run.root / "env-0").read_text().splitlines()
    assert "HF_HUB_OFFLINE=1" in env and "TRANSFORMERS_OFFLINE=1" in env
    assert not [line for line in env if line.startswith(HUB_TOKEN)]
    written = [path for path in tmp_path.rglob("*") if path.is_file() and TOKEN.encode() in path.read_bytes()]
    assert written == [] and TOKEN not in output


def test_token_that_the_spec_names_goes_on_to_the_commands(lab: HubLab, tmp_path: Path) -> None:
    with running(tmp_path, everywhere(), secrets=(HUB_TOKEN,), **plan_fields(lab, 1)) as run:
        status, output = go(run)
    assert status == 0, output
    assert f"{HUB_TOKEN}={TOKEN}" in (run.root / "env-0").read_text().splitlines()


def test_gated_model_blocks_the_run_before_its_driver(lab: HubLab, tmp_path: Path) -> None:
    lab.gated = True
    with running(tmp_path, everywhere(), **plan_fields(lab, 1)) as run:
        status, _ = go(run)
    assert status == 3 and run.rules() == ["stage.hub-denied"]
    assert run.results()["first_phase_failed"] == "stage" and not (run.root / "env-0").exists()


@needs_python39
def test_oldest_python_downloads_too(lab: HubLab, tmp_path: Path) -> None:
    lab.stall, lab.cut, lab.refuse = 1, 1, 1
    fields = plan_fields(lab, 1)
    fields["env"]["HF_HUB_DOWNLOAD_TIMEOUT"] = "1"
    with running(tmp_path, everywhere(), **fields) as run:
        status, output = go(run, str(PYTHON39))
    assert (status, run.rules()) == (0, ["stage.hub-restarts"]), output
    assert (run.root / "sum-0").read_text().split()[0] == lab.etag("model.safetensors")
