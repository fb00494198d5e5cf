"""Runs that go on and teach nothing: each pattern is found and named, and healthy metrics show none."""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from itertools import accumulate
from pathlib import Path

import pytest

from jobspec.evidence.read import read_evidence
from jobspec.frameworks.shared.metric_deliverables import learning_deliverable
from jobspec.judging.judge import judge
from jobspec.metrics import Row, Table
from jobspec.metrics.held_out import trained_rise
from jobspec.metrics.training_health import troubles
from jobspec.verdict import Deliverable, Status
from tests.kits.script_module import load_script
from tests.kits.verdict_kit import PLAN, RunFolder, learning_rows, passing_run

Function = Callable[[int], float]
SIMULATION = load_script(Path(__file__).parents[2] / "benchmarks/learning_signal.py")


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
        ("grad_norm", lambda step: 0.3 * 2**step, "gradient-explosion", 7),
        ("reward_std", lambda step: 0.0, "zero-advantage", 1),
        ("frac_reward_zero_std", lambda step: 1.0 if step > 4 else 0.2, "zero-advantage", 5),
        ("kl", lambda step: 1e-4 * 2.5**step, "kl-explosion", 11),
        ("actor__kl_loss", lambda step: 0.01 if step < 15 else 9.0, "kl-explosion", 15),
        ("policy__policy_entropy", lambda step: 0.4 if step < 8 else 0.01, "entropy-collapse", 8),
        ("train__approx_entropy", lambda step: 0.3 * 1.3**step, "entropy-explosion", 6),
        ("response_length__mean", lambda step: 800 if step < 10 else 20, "length-collapse", 10),
        ("train__mean_gen_tokens_per_sample", lambda step: 900 * 0.7**step, "length-collapse", 7),
        ("train__truncation_rate", lambda step: 0.1 if step < 13 else 0.99, "length-cap", 13),
        ("train__token_mult_prob_error", lambda step: 1.02 if step < 12 else 1.9, "off-policy-gap", 12),
        ("training__rollout_probs_diff_mean", lambda step: 0.003 * 1.3**step, "off-policy-gap", 11),
        ("policy__rollout_train_logprobs_abs_diff_mean", lambda s: 0.02 if s < 9 else 2, "off-policy-gap", 9),
        ("sampling__sampling_logp_difference__mean", lambda s: 0.01 if s < 9 else 0.9, "off-policy-gap", 9),
        ("reward", lambda step: 0.5 + step / 50 if step < 12 else 0.01, "reward-collapse", 12),
        ("reward", lambda step: step / 40 if step < 12 else 0.1, "reward-fell", 12),
        ("rewards__accuracy", lambda step: 0.5 if step < 12 else 0.0, "reward-collapse", 12),
        ("val__test_score__aime", lambda step: 0.0, "held-out-zero", 1),
        ("eval_reward", lambda step: 0.5 - step / 50, "held-out-fell", 3),
        ("eval_loss", lambda step: 1.4 - step / 20 if step < 9 else 1 + step / 40, "held-out-loss-rose", 9),
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
        ("loss", lambda step: 0.0),  # of GRPO, for one: a constant of few digits
        ("objective__kl", lambda step: 1.5 * step),  # TRL's PPO sums it over an answer
        ("kl", lambda step: 90.0 if step in (6, 19) else 0.03 * step / 20),
        ("entropy", lambda step: 0.5 * 0.9**step),
        ("completions__mean_length", lambda step: 512 * 0.93**step),
        ("response_length__mean", lambda step: 500.0 * step),
        ("grad_norm", lambda step: 200.0 if step % 9 == 0 else 0.4),
        ("train__token_mult_prob_error", lambda step: 30.0 if step == 12 else 1.02),
        ("reward", lambda step: 0.4 if step == 9 else 0.5 + step / 50),
        ("critic__rewards__mean", lambda step: -1 + step / 20),
        ("eval_reward", lambda step: 0.3 - 0.02 * (step % 2)),
        ("val-aux__num_turns__mean", lambda step: 0.0),  # no score
        ("eval_reward_std", lambda step: 0.0),
        ("eval_loss", lambda step: 1.4 - step / 40),
        ("eval_loss", lambda step: 1.0 + 0.2 * (step % 2)),
    ],
)
def test_healthy_metrics_show_none(name: str, function: Function) -> None:
    assert kinds(table(**{name: function})) == []


def test_few_values_are_no_pattern() -> None:
    assert kinds(table(3, reward=lambda step: 1.0, actor__kl_loss=lambda step: 0.0)) == []


def test_short_run_whose_rewards_end_is_named() -> None:
    (found,) = troubles(table(6, critic__score__mean=lambda step: 0.4 if step < 3 else 0.0))
    assert (found.kind, found.row.step, found.fatal) == ("reward-gone", 3, False)
    for function in (lambda step: 0.4 if step in (1, 4) else 0.0, lambda step: 0.4 if step < 5 else 0.0):
        assert kinds(table(6, critic__score__mean=function)) == []


def test_loss_that_is_0_at_once_and_stays_is_lost() -> None:
    """One that comes down to 0, or lies around it, may be logged as 0 after rounding."""
    (found,) = troubles(table(30, loss=lambda step: 1.1 + step % 3 / 10 if step < 12 else 0.0))
    assert (found.kind, found.row.step, found.fatal) == ("vanished-loss", 12, True)
    falls, around = (
        (lambda step: max(0.0, 0.6 - step / 20)),
        (lambda step: (step % 3 - 1) / 50 if step < 9 else 0.0),
    )
    for function in (falls, around, lambda step: 1.1 if step < 25 else 0.0):
        assert kinds(table(30, loss=function)) == []


def test_part_of_a_reward_that_is_always_0_is_named() -> None:
    parts = {"rewards__accuracy_reward__mean": lambda step: 0.0, "rewards__format__mean": lambda step: 1.0}
    (found,) = troubles(table(**parts))
    assert (found.kind, found.row.metric, found.fatal) == (
        "constant-reward",
        "rewards/accuracy_reward/mean",
        False,
    )


def test_gradients_that_end_late_contradict_no_learning() -> None:
    """A task that is solved leaves none; the reward decides."""
    (late,) = troubles(table(grad_norm=lambda step: 0.1 if step < 9 else 0.0))
    (early,) = troubles(table(grad_norm=lambda step: 0.1 if step < 4 else 0.0))
    assert (late.fatal, early.fatal) == (False, True)


def test_one_held_out_score_may_fall_while_another_rises() -> None:
    falling, rising = (lambda step: 0.6 - step / 40), (lambda step: 0.2 + step / 40)
    (alone,) = troubles(table(validation__accuracy=falling))
    (beside,) = troubles(table(eval__a__avg_score=falling, eval__b__avg_score=rising))
    assert (alone.fatal, beside.fatal) == (True, False)


def test_part_of_a_reward_contradicts_no_learning() -> None:
    (found,) = troubles(table(rewards__format_reward=lambda step: 0.5 if step < 12 else 0.0))
    assert found.kind == "reward-collapse" and not found.fatal


@pytest.mark.parametrize("name", SIMULATION.HEALTHY)
@pytest.mark.parametrize("count", [12, 24, 100])
def test_healthy_run_seldom_raises_an_alarm(name: str, count: int) -> None:
    found, fatal = SIMULATION.alarms(name, count, 40)
    assert found <= 2 and fatal <= 1


def test_frameworks_own_names_count() -> None:
    found = table(score=lambda step: 0.5, my_norm=lambda step: 0.0)
    own = {"reward": "score", "grad_norm": "my_norm"}
    assert {one.kind for one in troubles(found, own)} == {"constant-reward", "zero-gradient"}


def test_learning_is_not_claimed_over_zero_gradients(tmp_path: Path) -> None:
    run = passing_run(tmp_path)
    assert learning_deliverable(read_evidence(run.root)).status is Status.PASS
    run.metrics([{**row, "grad_norm": 0.0} for row in learning_rows()])
    found = learning_deliverable(read_evidence(run.root))
    assert found.status is Status.FAIL and "exactly 0 in 60 of 60 logged steps" in found.reason


def test_what_explains_a_missing_signal_is_named_with_it(tmp_path: Path) -> None:
    run = passing_run(tmp_path)
    run.metrics([{**row, "reward": 1.0} for row in learning_rows()])
    assert "starts at 1, and stays at most 1" in learning_deliverable(read_evidence(run.root)).reason


def learning_of(run: RunFolder, rewards: list[float], **others: list[float]) -> Deliverable:
    series = {"reward": rewards, **others}
    run.metrics(
        [
            {"step": step, **{name: values[step] for name, values in series.items() if step < len(values)}}
            for step in range(len(rewards))
        ]
    )
    return learning_deliverable(read_evidence(run.root))


def test_few_points_are_blocked_and_enough_without_a_rise_fail(tmp_path: Path) -> None:
    run = passing_run(tmp_path)
    few = learning_of(run, [0.1, 0.2, 0.3, 0.4])
    assert few.status is Status.BLOCKED and "too few" in few.reason
    held_out = learning_of(run, [0.1, 0.2, 0.3, 0.4, 0.5], eval_reward=[0.1, 0.2, 0.3, 0.4, 0.5])
    assert held_out.status is Status.BLOCKED
    assert learning_of(run, [0.3, 0.31, 0.29, 0.3] * 6).status is Status.FAIL


def test_walk_that_stays_possible_is_a_limitation_of_a_pass(tmp_path: Path) -> None:
    run, draw = passing_run(tmp_path), random.Random(3)
    found = learning_of(run, [step / 12 + draw.gauss(0, 0.2) for step in range(12)])
    said = judge(read_evidence(run.root)).limitations
    assert found.status is Status.PASS and "% of runs" in found.reason
    assert any("`reward`: a random walk with steps as large" in one for one in said)


def test_rise_of_a_held_out_score_decides_what_the_reward_leaves_unclear(tmp_path: Path) -> None:
    run, draw = passing_run(tmp_path), random.Random(9)
    walk = list(accumulate(draw.gauss(0.08, 0.3) for _ in range(60)))
    assert learning_of(run, walk).status is Status.BLOCKED
    rising, flat = [0.2 + 0.01 * i for i in range(20)], [0.2 + 0.01 * (i % 2) for i in range(20)]
    found = learning_of(run, walk, eval_reward=rising)
    assert found.status is Status.PASS and "`eval_reward` rose with it, 0.2 -> 0.39" in found.reason
    assert learning_of(run, walk, eval_reward=flat).status is Status.BLOCKED
    lower = [0.6, *rising[:18], 0.55]  # it rises between two ends of which the second is lower
    assert "rose with it" not in learning_of(run, walk, eval_reward=lower).reason


def test_metric_of_the_training_is_read_beside_its_evaluation() -> None:
    found = table(accuracy=lambda step: 0.5 + step / 100 + step % 3 / 200, eval_accuracy=lambda step: 0.6)
    assert trained_rise(found, "eval_accuracy", "up").startswith("`accuracy`, of the training, rose beyond")
    assert not trained_rise(found, "eval_accuracy", "down") and not trained_rise(found, "accuracy", "up")


def test_collapse_is_named_with_its_step(tmp_path: Path) -> None:
    run = passing_run(tmp_path)
    rewards = [0.9 + i / 100 for i in range(70)] + [0.0] * 80
    found = learning_of(run, rewards, kl=[1e-4 * 1.13**i for i in range(150)])
    assert found.status is Status.FAIL
    lost = "from about step 70 on: nine tenths or more of what it had gained is lost"
    assert lost in found.reason and "`kl` had a median of" in found.reason


def test_constant_reward_lost_nothing(tmp_path: Path) -> None:
    """Means of equal values differ in their last digits alone."""
    run = passing_run(tmp_path)
    found = learning_of(run, [0.3] * 40)
    assert "fell" not in found.reason and "is 0.3 at all 40 logged steps" in found.reason


def test_reward_that_never_rose_is_not_called_learnt(tmp_path: Path) -> None:
    run = passing_run(tmp_path)
    found = learning_of(run, [0.3] * 99 + [0.0] * 101)
    assert "it is far below what it was before" in found.reason and "learnt" not in found.reason


def test_reward_that_fell_from_its_start_lost_nothing(tmp_path: Path) -> None:
    run = passing_run(tmp_path)
    assert "had a mean of" not in learning_of(run, [-0.05 * i for i in range(100)]).reason


def test_implicit_rewards_of_dpo_may_both_fall(tmp_path: Path) -> None:
    run = passing_run(tmp_path)
    chosen = [0.02 * min(i, 20) - 0.03 * max(0, i - 20) for i in range(60)]
    run.metrics(
        [{**row, "rewards/chosen": value} for row, value in zip(learning_rows(), chosen, strict=True)]
    )
    assert not [one for one in troubles(read_evidence(run.root).metrics) if one.kind.startswith("reward")]


def test_report_names_them_whatever_the_level(tmp_path: Path) -> None:
    run = passing_run(tmp_path, PLAN)
    run.metrics([{**row, "response_length/clip_ratio": 0.99} for row in learning_rows()])
    assert "metrics.length-cap" in [one.rule for one in judge(read_evidence(run.root)).findings]


def test_the_word_converged_is_never_used() -> None:
    for found in troubles(table(reward=lambda step: 1.0)):
        assert "converge" not in f"{found.what} {found.why} {found.fix}"


def test_share_of_equal_groups_is_told_as_what_all_these_steps_have() -> None:
    rows = [1.0 if step % 3 else 0.96 for step in range(1, 13)]
    table = Table(
        [Row("frac_reward_zero_std", step, value, None, "m", step) for step, value in enumerate(rows, 1)]
    )
    assert [one.what for one in troubles(table)] == [
        "`frac_reward_zero_std` is 0.95 or more in 12 of 12 logged steps"
    ]


def test_first_step_is_named_only_where_more_follow() -> None:
    cut = troubles(table(5, **{"completions/clipped_ratio": lambda step: 0.96 if step in (2, 5) else 0.9}))
    assert not [one for one in cut if "from about step 5 on" in one.what]


def test_steps_that_were_not_logged_are_not_counted() -> None:
    (found,) = [one for one in troubles(table(grad_norm=lambda step: 0.0)) if one.kind == "zero-gradient"]
    assert "in 20 of 20 logged steps" in found.what


def test_metric_that_stands_under_a_second_name_is_told_once() -> None:
    def collapse(step: int) -> float:
        return min(step, 20) / 25 + step % 3 / 50 if step < 40 else 0.01

    rows = table(60, objective__scores=collapse).rows
    twice = (*rows, *(row._replace(metric="reward") for row in rows))
    found = [one.row.metric for one in troubles(Table(twice, names={"reward": "objective/scores"}))]
    assert found == ["objective/scores"]
