"""One table of likely names: a metric that one part knows is known to all."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from jobspec.cli.live.metrics import ProgressReader
from jobspec.evidence.read import read_evidence
from jobspec.judging.judge import judge
from jobspec.metrics import Row, Table
from jobspec.metrics.names import FIGURES, GRAD_NORM, LIKELY, REWARD, find_metric, logged_name
from jobspec.metrics.training_health import troubles
from jobspec.runs.paths import RunPaths
from tests.kits.verdict_kit import PLAN, StandInFramework, passing_run

NAMED = [(figure, name) for figure in FIGURES for name in LIKELY[figure]]


@pytest.mark.parametrize(("figure", "name"), NAMED)
def test_report_and_status_know_every_name(figure: str, name: str, tmp_path: Path) -> None:
    plan = replace(PLAN, expect=replace(PLAN.expect, metric_keys={}, learning=None))
    run = passing_run(tmp_path, plan)
    run.metrics([{"step": step, name: step / 4} for step in range(3)])
    shown = ProgressReader(RunPaths(tmp_path)).read()
    assert shown.figures == ((figure, 0.5),)
    figures = judge(read_evidence(tmp_path), StandInFramework()).figures
    assert [(one.name, one.metric, one.last) for one in figures] == [(figure, name, 0.5)]


@pytest.mark.parametrize(("figure", "kind"), [(REWARD, "constant-reward"), (GRAD_NORM, "zero-gradient")])
def test_health_knows_every_name(figure: str, kind: str) -> None:
    for name in LIKELY[figure]:
        table = Table(tuple(Row(name, step, 0.0) for step in range(9)))
        assert kind in [one.kind for one in troubles(table)], name


def test_no_name_means_two_figures() -> None:
    names = [name for known in LIKELY.values() for name in known]
    assert len(names) == len(set(names))


@pytest.mark.parametrize(
    ("keys", "logged", "metric"),
    [
        ({}, ["loss", "actor/grad_norm"], "actor/grad_norm"),
        ({"grad_norm": "policy/gn"}, ["grad_norm", "policy/gn"], "policy/gn"),
        ({"grad norm": "policy/gn"}, ["grad_norm"], "grad_norm"),
        ({}, ["loss"], ""),
    ],
)
def test_own_name_comes_first_where_it_is_logged(
    keys: dict[str, str], logged: list[str], metric: str
) -> None:
    assert find_metric(GRAD_NORM, keys, logged) == metric


@pytest.mark.parametrize(
    ("logged", "metric"),
    [
        (["rollout/raw_reward", "eval/raw_reward"], "rollout/raw_reward"),
        (["eval/raw_reward"], ""),
        (["math/val-core/raw_reward"], ""),
        (["evaluator/raw_reward"], "evaluator/raw_reward"),
        (["a/raw_reward", "b/raw_reward"], ""),
    ],
)
def test_asked_name_is_never_one_of_held_out_data(logged: list[str], metric: str) -> None:
    assert logged_name("raw_reward", logged) == metric


def test_report_shows_a_likely_name_where_the_own_one_is_not_logged(tmp_path: Path) -> None:
    run = passing_run(tmp_path, replace(PLAN, expect=replace(PLAN.expect, metric_keys={"loss": "my/loss"})))
    (run.folder / "metrics" / "metrics.jsonl").write_text(json.dumps({"step": 1, "actor/loss": 0.5}) + "\n")
    figures = judge(read_evidence(tmp_path), StandInFramework()).figures
    assert [one.metric for one in figures] == ["actor/loss"]
