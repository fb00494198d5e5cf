"""`stage: hub` in plan, script and lock, with a hub on this machine that says which commit a name is."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from jobspec import cli
from jobspec.plan import HUB_TOKEN, Plan, from_json
from jobspec.rendering.files import directives
from tests.kits.hub_lab import COMMIT, HubLab
from tests.runtime.staging.stage_kit import sharded

FILES = sharded(count=2, size=2000)
SITE = {
    "version": 1,
    "name": "lab",
    "container": {"runtime": "podman"},
    "paths": {"runs": "runs", "node_local": "/raid/ann"},
}
SPEC: dict[str, Any] = {
    "version": 1,
    "name": "x",
    "framework": "command",
    "model": {"id": "acme/tiny", "stage": "hub", "load": False},
    "train": {"command": ["true"]},
    "resources": {"nodes": 1, "time": "01:00:00"},
    "container": {"image": f"registry.example.com/x@sha256:{'a' * 64}"},
}


@pytest.fixture
def lab(monkeypatch: pytest.MonkeyPatch) -> Iterator[HubLab]:
    made = HubLab(FILES)
    monkeypatch.setenv("HF_ENDPOINT", made.url)
    monkeypatch.delenv(HUB_TOKEN, raising=False)
    yield made
    made.close()


def call(folder: Path, *argv: str, **model: Any) -> int:
    (folder / "lab.yaml").write_text(
        yaml.safe_dump({**SITE, "paths": {**SITE["paths"], "runs": str(folder / "runs")}})
    )  # type: ignore[dict-item]
    (folder / "spec.yaml").write_text(yaml.safe_dump({**SPEC, "model": {**SPEC["model"], **model}}))
    return cli.main(
        [argv[0], str(folder / "spec.yaml"), "--cluster-file", str(folder / "lab.yaml"), *argv[1:]]
    )


def rendered(folder: Path, **model: Any) -> Plan:
    assert call(folder, "render", "--out", str(folder / "run"), **model) == 0
    return from_json((folder / "run" / "plan.json").read_text())


def test_submission_pins_the_commit_that_the_hub_names(lab: HubLab, tmp_path: Path) -> None:
    plan = rendered(tmp_path)
    assert (plan.stage[0].revision, plan.stage[0].from_hub, plan.stage[0].node_local) == (COMMIT, True, True)
    lock = yaml.safe_load((tmp_path / "run" / "spec.lock.yaml").read_text())
    assert lock["model"]["revision"] == COMMIT and lock["model"]["stage"] == "hub"
    assert len(lab.of("/api/")) == 1


def test_validation_asks_nobody(lab: HubLab, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert call(tmp_path, "validate") == 0
    assert "warning[stage.hub-unpinned]" in capsys.readouterr().err and lab.seen == []


def test_commit_that_nobody_knows_ends_the_submission(
    lab: HubLab, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    lab.token = "hf_other"
    assert call(tmp_path, "render", "--out", str(tmp_path / "run")) == 2
    told = capsys.readouterr()
    assert "error[stage.hub-unknown]" in told.out + told.err and not (tmp_path / "run").exists()


def test_hub_that_has_us_wait_for_long_does_not_hold_up_a_command(
    lab: HubLab, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("jobspec.planning.lookups.HUB_DEADLINE_S", 0.1)
    monkeypatch.setattr("jobspec.runtime.staging.shared.CHECK_PAUSE_S", 0.1)
    lab.refuse, lab.retry_after = 10**6, "300"
    assert call(tmp_path, "render", "--out", str(tmp_path / "run")) == 2
    told = capsys.readouterr()
    assert "the hub answered 429" in told.out + told.err and len(lab.seen) == 2
    assert call(tmp_path, "stage", "--check", revision=COMMIT) == 1
    told = capsys.readouterr()
    assert "stage.hub-refused" in told.out + told.err and len(lab.seen) == 2 + 3


def test_answer_byte_by_byte_does_not_hold_up_a_command(
    lab: HubLab, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("jobspec.planning.lookups.HUB_TOTAL_S", 0.3)
    monkeypatch.setattr("jobspec.runtime.staging.shared.CHECK_S", 0.3)
    lab.drip_s = 0.1
    assert call(tmp_path, "render", "--out", str(tmp_path / "run")) == 2
    told = capsys.readouterr()
    assert "has not answered in full: after 0.3 s" in told.out + told.err
    assert call(tmp_path, "stage", "--check", revision=COMMIT) == 1
    told = capsys.readouterr()
    assert "stage.hub-stalled" in told.out + told.err


def test_address_of_the_hub_without_a_scheme_is_refused_at_once(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_ENDPOINT", "hub.example.org")
    assert call(tmp_path, "render", "--out", str(tmp_path / "run")) == 2
    told = capsys.readouterr()
    assert "`HF_ENDPOINT` is `hub.example.org`, which is no web address" in told.out + told.err


def test_pinned_commit_needs_no_network(lab: HubLab, tmp_path: Path) -> None:
    lab.close()
    assert rendered(tmp_path, revision=COMMIT).stage[0].revision == COMMIT


def test_nothing_of_shared_storage_is_asked_for(lab: HubLab, tmp_path: Path) -> None:
    """Neither a mount nor a cache, and no copy that must be there."""
    plan = rendered(tmp_path, revision=COMMIT)
    assert not [mount for mount in plan.container.mounts if "models--" in mount.source]
    assert plan.hf_home == ""


def test_token_travels_by_name_though_the_spec_does_not_list_it(lab: HubLab, tmp_path: Path) -> None:
    plan = rendered(tmp_path, revision=COMMIT)
    assert (plan.secrets, plan.stage_secrets) == ((), (HUB_TOKEN,))
    assert f"--export={HUB_TOKEN}" in list(directives(plan, "/runs/x"))
    assert f"--env {HUB_TOKEN}" in (tmp_path / "run" / "srun.sh").read_text()


def test_stage_check_tells_size_and_commit(
    lab: HubLab, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert call(tmp_path, "stage", "--check", "--json") == 0
    found = json.loads(capsys.readouterr().out)[0]
    assert (found["present"], found["bytes"], found["revision"]) == (
        True,
        sum(map(len, FILES.values())),
        COMMIT,
    )
    assert call(tmp_path, "stage") == 0
    told = capsys.readouterr().out
    assert "at the hub" in told and f"the nodes download it; its commit is {COMMIT}" in told
    assert lab.sent == 2 * (len(FILES["config.json"]) + len(FILES["model.safetensors.index.json"]))


def test_stage_check_tells_what_a_node_would_be_told(
    lab: HubLab, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    lab.token, lab.gated = "hf_right", True
    assert call(tmp_path, "stage", "--check") == 1
    captured = capsys.readouterr()
    told = captured.out + captured.err
    assert "MISSING" in told and "stage.hub-denied" in told and "export `HF_TOKEN`" in told
