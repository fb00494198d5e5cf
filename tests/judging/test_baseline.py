"""A run beside a known-good one: what is no worse, what is clearly worse, and what nobody can tell."""

from __future__ import annotations

import json
import random
from dataclasses import replace
from pathlib import Path

import pytest

from jobspec.evidence.read import read_evidence
from jobspec.finding import JobspecError
from jobspec.judging.baseline import BASELINE, with_baseline
from jobspec.judging.judge import judge
from jobspec.judging.not_proved import NO_BASELINE
from jobspec.verdict import Result, Status, Verdict
from tests.kits.verdict_kit import PLAN, StandInFramework, learning_rows, passing_run


def curve(start: float, end: float, noise: float, steps: int = 60, seed: int = 1) -> list[dict[str, float]]:
    """A reward that rises for four fifths of the steps and then stays."""
    draw = random.Random(seed)
    share = [min(1.0, step / (0.8 * steps)) for step in range(1, steps + 1)]
    return [
        {"step": step, "reward": start + (end - start) * part + draw.gauss(0, noise)}
        for step, part in enumerate(share, 1)
    ]


def beside(tmp_path: Path, rows: list[dict[str, float]]) -> Verdict:
    """The verdict of the kit's run (reward 0.15 to 0.84) beside a file of metrics."""
    run = passing_run(tmp_path / "run")
    base = tmp_path / "good.jsonl"
    base.write_text("".join(json.dumps(row) + "\n" for row in rows))
    evidence = read_evidence(run.root)
    evidence = replace(evidence, plan=replace(evidence.plan, framework="command"))
    evidence = replace(evidence, plan=replace(evidence.plan, expect=replace(PLAN.expect, level="run")))
    verdict = judge(evidence, StandInFramework())
    assert verdict.result is Result.PASS
    assert NO_BASELINE in verdict.limitations
    found = with_baseline(verdict, evidence, base)
    assert NO_BASELINE not in found.limitations
    return found


@pytest.mark.parametrize(
    ("start", "end", "noise", "status"),
    [
        (0.15, 0.84, 0.03, Status.PASS),
        (0.15, 0.70, 0.03, Status.PASS),
        (0.15, 0.90, 0.03, Status.PASS),  # a lack of less than a quarter of its gain
        (0.15, 1.60, 0.03, Status.FAIL),
        (0.15, 1.20, 0.5, Status.BLOCKED),  # too noisy to tell
        (0.50, 0.50, 0.03, Status.BLOCKED),  # learns nothing itself
        (0.90, 0.20, 0.03, Status.BLOCKED),
    ],
)
def test_the_end_of_the_run_beside_the_baselines(
    start: float, end: float, noise: float, status: Status, tmp_path: Path
) -> None:
    verdict = beside(tmp_path, curve(start, end, noise))
    item = verdict.deliverable(BASELINE)
    assert item is not None
    assert (item.status, str(verdict.result)) == (status, str(status)), item.reason
    assert item.reason.startswith("`reward` up to step 60: ")
    assert verdict.first_cause is None if status is Status.PASS else verdict.first_cause is not None


def test_only_steps_that_both_have_are_compared(tmp_path: Path) -> None:
    """A baseline of 600 steps ends higher than 60 steps can; at step 60 it was no better."""
    item = beside(tmp_path, curve(0.15, 4.0, 0.02, steps=600)).deliverable(BASELINE)
    assert item is not None
    assert item.status is Status.PASS, item.reason


@pytest.mark.parametrize(
    ("rows", "text"),
    [
        (curve(0.1, 0.8, 0.02, steps=5), "5 points are too few"),
        (
            [{"step": step, "loss": 1.0} for step in range(1, 61)],
            "the baseline `good.jsonl` logged no `reward`",
        ),
    ],
)
def test_a_baseline_that_tells_nothing_blocks(
    rows: list[dict[str, float]], text: str, tmp_path: Path
) -> None:
    verdict = beside(tmp_path, rows)
    assert verdict.result is Result.BLOCKED
    assert text in verdict.reason


def test_a_run_that_failed_stays_failed(tmp_path: Path) -> None:
    flat = [{**row, "reward": 0.1} for row in learning_rows()]
    run = passing_run(tmp_path / "run")
    run.metrics(flat)
    evidence = read_evidence(run.root)
    verdict = judge(evidence, StandInFramework())
    found = with_baseline(verdict, evidence, passing_run(tmp_path / "good").root)
    assert (found.result, found.first_cause) == (verdict.result, verdict.first_cause)
    assert found.deliverable(BASELINE) is not None


def test_a_run_directory_is_a_baseline(tmp_path: Path) -> None:
    evidence = read_evidence(passing_run(tmp_path / "run").root)
    found = with_baseline(judge(evidence, StandInFramework()), evidence, passing_run(tmp_path / "good").root)
    assert found.result is Result.PASS
    item = found.deliverable(BASELINE)
    assert item is not None
    assert "no worse than the baseline: 0.84 at the end, the baseline 0.84" in item.reason


def test_a_baseline_that_is_not_there_is_named(tmp_path: Path) -> None:
    evidence = read_evidence(passing_run(tmp_path / "run").root)
    with pytest.raises(JobspecError, match="there is no baseline"):
        with_baseline(judge(evidence, StandInFramework()), evidence, tmp_path / "none")
