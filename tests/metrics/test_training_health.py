"""Runs that go on and teach nothing: each pattern is found and named, and healthy metrics show none."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path

import pytest

from jobspec.evidence.read import read_evidence
from jobspec.frameworks.shared.metric_deliverables import learning_deliverable
from jobspec.judging.judge import judge
from jobspec.metrics import Row, Table
from jobspec.metrics.training_health import troubles
from jobspec.verdict import Status
from tests.kits.verdict_kit import PLAN, learning_rows, passing_run

Function = Callable[[int], float]


def table(steps: int = 20, **metrics: Function) -> Table:
    return Table(
        tuple(
            Row(name.replace("__", "/"), step, function(step), None, "m.jsonl", step)
            for name, function in metrics.items()
            for step in range(1, steps + 1)
        )
    )


def kinds(found: Table) -> list[str]:
    return [one.kind for one in troubles(found)]


@pytest.mark.parametrize(
    ("name", "function", "kind", "line"),
    [
        ("grad_norm", lambda step: 0.0, "zero-gradient", 1),
        ("train__grad_norm", lambda step: 0.0 if step > 5 else 0.1, "zero-gradient", 6),
        ("actor__grad_norm", lambda step: math.nan if step == 7 else 0.1, "not-finite", 7),
        ("actor__kl_loss", lambda step: 0.0, "frozen-policy", 2),
        ("actor__kl_loss", lambda step: 0.1 if step == 1 else 0.0, "frozen-policy", 2),
        ("train__logprobs", lambda step: -1.25, "constant-logprobs", 1),
        ("reward", lambda step: 0.0, "constant-reward", 1),
        ("critic__rewards__mean", lambda step: math.inf if step == 3 else step, "not-finite", 3),
        ("train__reward", lambda step: 0.97 + step / 1000, "saturated-reward", 1),
        ("rewards__mean", lambda step: 1.0, "saturated-reward", 1),
        ("response_length__clip_ratio", lambda step: 0.98, "length-cap", 1),
        ("completions__clipped_ratio", lambda step: 1.0, "length-cap", 1),
    ],
)
def test_pattern_is_found_at_its_first_line(name: str, function: Function, kind: str, line: int) -> None:
    (found,) = troubles(table(**{name: function}))
    assert (found.kind, found.row.line) == (kind, line)
    assert found.what.startswith(f"`{name.replace('__', '/')}`") and found.why and found.fix


@pytest.mark.parametrize(
    ("name", "function"),
    [
        ("grad_norm", lambda step: 0.0 if step % 2 else 0.1),  # half of the steps
        ("actor__kl_loss", lambda step: 1e-9 * (step - 1)),
        ("reward", lambda step: step / 20),
        ("reward", lambda step: 3.0 + step),  # no share: it has no ceiling
        ("response_length__clip_ratio", lambda step: 0.5),
        ("actor__pg_clipfrac__clip_ratio", lambda step: 1.0),  # PPO's clipping, not of lengths
        ("loss", lambda step: 0.0),
    ],
)
def test_healthy_metrics_show_none(name: str, function: Function) -> None:
    assert kinds(table(**{name: function})) == []


def test_few_values_are_no_pattern() -> None:
    assert kinds(table(3, reward=lambda step: 1.0, actor__kl_loss=lambda step: 0.0)) == []


def test_frameworks_own_names_count() -> None:
    found = table(score=lambda step: 0.5, my_norm=lambda step: 0.0)
    own = {"reward": "score", "grad_norm": "my_norm"}
    assert {one.kind for one in troubles(found, own)} == {"constant-reward", "zero-gradient"}


def test_learning_is_not_claimed_over_zero_gradients(tmp_path: Path) -> None:
    run = passing_run(tmp_path)
    assert learning_deliverable(read_evidence(run.root)).status is Status.PASS
    run.metrics([{**row, "grad_norm": 0.0} for row in learning_rows()])
    found = learning_deliverable(read_evidence(run.root))
    assert found.status is Status.FAIL and "exactly 0 in 60 of 60 steps" in found.reason


def test_what_explains_a_missing_signal_is_named_with_it(tmp_path: Path) -> None:
    run = passing_run(tmp_path)
    run.metrics([{**row, "reward": 1.0} for row in learning_rows()])
    assert "ceiling from the start" in learning_deliverable(read_evidence(run.root)).reason


def test_report_names_them_whatever_the_level(tmp_path: Path) -> None:
    run = passing_run(tmp_path, PLAN)
    run.metrics([{**row, "response_length/clip_ratio": 0.99} for row in learning_rows()])
    assert "metrics.length-cap" in [one.rule for one in judge(read_evidence(run.root)).findings]


def test_the_word_converged_is_never_used() -> None:
    for found in troubles(table(reward=lambda step: 1.0)):
        assert "converge" not in f"{found.what} {found.why} {found.fix}"
