"""What a run must not be taken for: each sentence where it is true, and only there."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from jobspec.evidence.evidence import Attempt, Evidence
from jobspec.judging.not_proved import NO_BASELINE, limitations
from jobspec.plan import LearningPlan, Plan
from tests.kits.verdict_kit import PLAN

WHOLE = replace(
    PLAN,
    nodes=2,
    gpus_per_node=8,
    repos=(),
    expect=replace(PLAN.expect, checkpoint=True, resume=True, learning=LearningPlan("reward")),
)
SIGNAL = "a learning signal is no convergence"


def told(plan: Plan, foreign: bool = False, attempts: int = 1) -> tuple[str, ...]:
    runs = tuple(Attempt(number, "") for number in range(1, attempts + 1))
    return limitations(Evidence(Path("/r"), plan, attempts=runs, foreign=foreign))


def changed(**expect: Any) -> Plan:
    return replace(WHOLE, expect=replace(WHOLE.expect, **expect))


def test_whole_run_is_limited_only_in_what_it_learned() -> None:
    assert told(WHOLE) == (SIGNAL, NO_BASELINE)


@pytest.mark.parametrize(
    ("plan", "text"),
    [
        (replace(WHOLE, gpus_per_node=0), "no GPU took part"),
        (replace(WHOLE, nodes=1), "one node took part"),
        (replace(WHOLE, repos=PLAN.repos), "repository `bridge` had uncommitted changes"),
        (replace(WHOLE, repos=PLAN.repos, proofs=()), "what was imported is compared with none"),
        (changed(checkpoint=False, resume=False), "neither saving nor resuming is proved"),
        (changed(resume=False), "resuming from a checkpoint is not proved"),
        (changed(learning=None), "neither learning nor convergence is proved"),
        (changed(options={"ep": 1}), "ep = 1: no expert parallelism is proved"),
        (changed(options={"cp": 1}), "cp = 1: no context parallelism is proved"),
        (changed(options={"dummy_model": True}), "no compatibility with real weights"),
        (changed(options={"text_only": True}), "nothing is proved about images, audio or video"),
        (changed(options={"reward_model": False}), "no reward model took part"),
        (changed(options={"peft": True}), "full-parameter training is not proved"),
        (changed(limitations=("its own words",)), "its own words"),
    ],
)
def test_sentence_follows_from_the_plan(plan: Plan, text: str) -> None:
    assert len([item for item in told(plan) if text in item]) == 1
    assert not any(text in item for item in told(WHOLE))


@pytest.mark.parametrize(
    "options", [{"ep": 2}, {"dummy_model": False}, {"text_only": False}, {"reward_model": True}, {"ep": "1"}]
)
def test_other_values_limit_nothing(options: dict[str, Any]) -> None:
    assert told(changed(options=options)) == (SIGNAL, NO_BASELINE)


def test_plan_speaks_first_and_nothing_is_said_twice() -> None:
    level = ("no convergence is proved", "no GPU took part: nothing is proved about CUDA, NCCL or GPU memory")
    assert told(replace(changed(limitations=level), gpus_per_node=0)) == (*level, NO_BASELINE)


def test_without_a_learning_signal_no_baseline_is_missed() -> None:
    assert NO_BASELINE not in told(changed(learning=None))


def test_further_attempts_are_told() -> None:
    assert "the run took 3 attempts; only the last one decides" in told(WHOLE, attempts=3)


def test_nothing_is_made_up_about_files_of_another_run() -> None:
    plan = replace(WHOLE, nodes=0, gpus_per_node=0, proofs=(), expect=replace(WHOLE.expect, checkpoint=False))
    found = " ".join(told(plan, foreign=True))
    assert "no GPU took part" not in found and "checkpointing was off" not in found
    for text in (
        "how many nodes and GPUs took part is not judged",
        "no checkpoint is asked for",
        "no checkout was named",
    ):
        assert text in found


def test_word_converged_is_never_used() -> None:
    plans = [WHOLE, changed(learning=None), changed(options={"ep": 1, "dummy_model": True})]
    assert not any("converged" in item for plan in plans for item in told(plan))
