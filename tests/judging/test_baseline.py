"""A run beside a known-good one: what is no worse, what is clearly worse, and what nobody can tell."""

from __future__ import annotations

import json
import random
from dataclasses import replace
from pathlib import Path

import pytest

from jobspec.evidence.read import read_evidence
from jobspec.finding import JobspecError
from jobspec.judging.baseline import BASELINE, judge_beside, with_baseline
from jobspec.judging.baseline import beside as read_beside
from jobspec.judging.judge import judge
from jobspec.judging.not_proved import NO_BASELINE
from jobspec.plan import BaselinePlan, TolerancePlan
from jobspec.report import build_report, render_report
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
    found = with_baseline(verdict, read_beside(evidence, base))
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


@pytest.mark.parametrize(
    ("end", "noise", "word"),
    [
        (0.40, 0.005, "better than"),
        (0.84, 0.005, "same as"),
        (0.64, 0.2, "no worse than"),  # the noise leaves open whether it is better
        (1.60, 0.005, "clearly worse than"),
    ],
)
def test_the_verdict_has_one_word_for_it(end: float, noise: float, word: str, tmp_path: Path) -> None:
    item = beside(tmp_path, curve(0.15, end, noise)).deliverable(BASELINE)
    assert item is not None
    assert f": {word} the baseline: 0.84 at the end, the baseline " in item.reason


def tolerated(tmp_path: Path, *tolerances: TolerancePlan, **rows: list[float]) -> Verdict:
    """The kit's run with other rows beside a baseline of its plan, whose `kl` is 0.10 and `loss` 2 to 1."""
    good = passing_run(tmp_path / "good")
    good.metrics([{"step": at, "reward": 0.8, "kl": 0.10, "loss": 2 - at / 10} for at in range(1, 11)])
    expect = replace(PLAN.expect, learning=None, baseline=BaselinePlan(str(good.root), tolerances))
    run = passing_run(tmp_path / "run", replace(PLAN, expect=expect))
    run.metrics(
        [{"step": at, **{key: values[at - 1] for key, values in rows.items()}} for at in range(1, 11)]
    )
    return judge_beside(read_evidence(run.root))[1]


@pytest.mark.parametrize(
    ("tolerance", "kl", "status", "text"),
    [
        (
            TolerancePlan("kl", 0.02),
            [0.11] * 10,
            Status.PASS,
            "steps 9 to 10: same as the baseline: mean 0.1",
        ),
        (TolerancePlan("kl", 0.02), [0.13] * 10, Status.FAIL, "not the same as the baseline: mean 0.13"),
        (TolerancePlan("kl", 0.02), [0.05] * 10, Status.FAIL, "not the same as the baseline: mean 0.05"),
        (TolerancePlan("kl", 0.02, "down"), [0.05] * 10, Status.PASS, "better than the baseline: mean 0.05"),
        (TolerancePlan("kl", 0.02, "up"), [0.05] * 10, Status.FAIL, "clearly worse than the baseline"),
        (TolerancePlan("kl", 0.02, "", 1, 4), [0.1] * 4 + [9] * 6, Status.PASS, "steps 1 to 4: same as"),
        (TolerancePlan("kl", 0.02, "", 5), [0.1] * 4 + [9] * 6, Status.FAIL, "steps 5 to 10: not the same"),
        (TolerancePlan("kl", 0.02), [0.1] * 8 + [0.2, 0.0], Status.BLOCKED, "the noise leaves open"),
        (
            TolerancePlan("kl", 0.02, "", 20),
            [0.1] * 10,
            Status.BLOCKED,
            "no `kl` was read between the steps 20 and",
        ),
        (
            TolerancePlan("kl", 0.02, "down"),
            [0.1] * 8 + [float("nan")] * 2,
            Status.BLOCKED,
            "step 9 is not a finite",
        ),
        (TolerancePlan("kl", 0.02), [0.1] * 8 + [float("inf")] * 2, Status.BLOCKED, "step 9 is not a finite"),
        (TolerancePlan("klr", 0.02), [0.1] * 10, Status.BLOCKED, "of this run no step with a `klr` was read"),
    ],
)
def test_each_metric_has_its_tolerance_and_steps(
    tolerance: TolerancePlan, kl: list[float], status: Status, text: str, tmp_path: Path
) -> None:
    verdict = tolerated(tmp_path, tolerance, kl=kl)
    (item,) = [item for item in verdict.deliverables if item.name.startswith(BASELINE)]
    assert (item.status, item.name.split(" (")[0]) == (status, f"{BASELINE}, {tolerance.metric}")
    assert text in item.reason
    assert item.required


def test_the_learnt_metric_is_compared_too_unless_a_tolerance_has_it(tmp_path: Path) -> None:
    def names(*tolerances: TolerancePlan) -> list[str]:
        place = tmp_path / str(len(tolerances))
        good = passing_run(place / "good")
        plan = replace(PLAN, expect=replace(PLAN.expect, baseline=BaselinePlan(str(good.root), tolerances)))
        verdict = judge_beside(read_evidence(passing_run(place / "run", plan).root))[1]
        assert NO_BASELINE not in verdict.limitations
        return [item.name for item in verdict.deliverables if item.name.startswith(BASELINE)]

    loss = TolerancePlan("loss", 1.0)
    assert names(loss) == [BASELINE, f"{BASELINE}, loss"]
    assert names(loss, TolerancePlan("reward", 0.1)) == [f"{BASELINE}, loss", BASELINE]


def test_a_planned_baseline_that_is_gone_blocks_and_another_can_be_named(tmp_path: Path) -> None:
    plan = replace(PLAN, expect=replace(PLAN.expect, baseline=BaselinePlan(str(tmp_path / "gone"))))
    evidence = read_evidence(passing_run(tmp_path / "run", plan).root)
    item = judge_beside(evidence)[1].deliverable(BASELINE)
    assert item is not None and item.status is Status.BLOCKED
    assert f"there is no baseline `{tmp_path}/gone`" in item.reason
    found = judge_beside(evidence, passing_run(tmp_path / "good").root)[1].deliverable(BASELINE)
    assert found is not None and found.status is Status.PASS


def test_both_curves_are_in_the_report(tmp_path: Path) -> None:
    good = passing_run(tmp_path / "good")
    run = passing_run(tmp_path / "run")
    evidence, verdict = judge_beside(read_evidence(run.root), good.root)
    (curve,) = [item for item in build_report(verdict, evidence).curves if item.metric == "reward"]
    assert curve.beside == curve.points and curve.baseline == "good"
    page = render_report(verdict, evidence, "html")
    assert '<span class="beside">good</span>' in page and '"name":"good","dashed":true' in page
    alone = render_report(judge(evidence), replace(evidence, baseline=None), "html")
    assert '<span class="beside">' not in alone and '"dashed":true' not in alone


def test_only_steps_that_both_have_are_compared(tmp_path: Path) -> None:
    """A baseline of 600 steps ends higher than 60 steps can; at step 60 it was no better."""
    item = beside(tmp_path, curve(0.15, 4.0, 0.02, steps=600)).deliverable(BASELINE)
    assert item is not None
    assert item.status is Status.PASS, item.reason


@pytest.mark.parametrize(
    ("rows", "text"),
    [
        (curve(0.1, 0.8, 0.02, steps=5), "has too few points to tell a trend from noise: 8 are needed"),
        (
            [{"step": step, "loss": 1.0} for step in range(1, 61)],
            "of the baseline `good.jsonl` no step with a `reward` was read",
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
    found = with_baseline(verdict, read_beside(evidence, passing_run(tmp_path / "good").root))
    assert (found.result, found.first_cause) == (verdict.result, verdict.first_cause)
    assert found.deliverable(BASELINE) is not None


def test_a_run_directory_is_a_baseline(tmp_path: Path) -> None:
    evidence = read_evidence(passing_run(tmp_path / "run").root)
    evidence = read_beside(evidence, passing_run(tmp_path / "good").root)
    found = with_baseline(judge(evidence, StandInFramework()), evidence)
    assert found.result is Result.PASS
    item = found.deliverable(BASELINE)
    assert item is not None
    assert "same as the baseline: 0.84 at the end, the baseline 0.84" in item.reason


def test_a_baseline_that_is_not_there_is_named(tmp_path: Path) -> None:
    evidence = read_evidence(passing_run(tmp_path / "run").root)
    with pytest.raises(JobspecError, match="there is no baseline"):
        read_beside(evidence, tmp_path / "none")
