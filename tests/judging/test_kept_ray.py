"""The verdict's line about a Ray that an earlier run has kept."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from jobspec.evidence.deliverables import RAY, phase_deliverables
from jobspec.evidence.read import read_evidence
from jobspec.verdict import Deliverable, Status
from tests.kits.verdict_kit import RunFolder

KEPT = {"run": "held/20261128-010203-ab12cd", "cluster": "42edf2e6d30f3c8c3486e1a6", "gpus_seen": True}


def ray_line(root: Path, outcome: str = "ok", **data: Any) -> Deliverable:
    run = RunFolder(root)
    run.phase("preflight")
    run.event("ray", "start")
    run.event("ray", "end", outcome=outcome, seconds=2.0, data={"nodes": ["n1", "n2"], **data})
    run.write()
    run.results()
    evidence = read_evidence(root)
    assert evidence.last is not None
    return next(line for line in phase_deliverables(evidence, evidence.last) if line.name == RAY)


def test_a_kept_ray_is_told_with_its_run_and_what_was_looked_at(tmp_path: Path) -> None:
    line = ray_line(tmp_path, kept=KEPT)
    assert line.status is Status.PASS
    assert line.reason == "kept from run `held/20261128-010203-ab12cd`, 2 nodes, proved clean"
    assert line.evidence[0].file.endswith("events.jsonl")
    assert "cluster 42edf2e6d30f" in line.evidence[0].text
    assert line.evidence[0].text.endswith("nothing on the GPUs")


@pytest.mark.parametrize(
    ("outcome", "data", "said"),
    [
        ("ok", {}, "ended well after 2.0 s"),
        ("blocked", {"kept": KEPT}, "phase `ray` ended as `blocked`"),
    ],
)
def test_a_fresh_ray_and_one_that_did_not_come_up_are_not_kept(
    tmp_path: Path, outcome: str, data: dict[str, Any], said: str
) -> None:
    assert ray_line(tmp_path, outcome, **data).reason == said


def test_gpus_that_nobody_could_look_at_are_told(tmp_path: Path) -> None:
    line = ray_line(tmp_path, kept={**KEPT, "gpus_seen": False})
    assert line.evidence[0].text.endswith("no nvidia-smi to see the GPUs by")
