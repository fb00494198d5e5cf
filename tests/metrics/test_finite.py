"""Which metrics must be numbers, by their names in the frameworks and their trackers."""

from __future__ import annotations

import math

import pytest

from jobspec.metrics import Row, Table
from jobspec.metrics.finite import all_finite, first_not_finite, is_watched


@pytest.mark.parametrize(
    "name",
    [
        "loss", "train/loss", "train/draft_loss", "actor/pg_loss", "critic/vf_loss", "policy/final_loss",
        "train/reward", "critic/rewards/mean", "rewards/accuracy/mean", "reward/avg_raw_reward",
        "critic/score/mean", "train/kl_penalty", "train/policy_kl_error", "actor/ppo_kl", "approx_kl",
        "approxkl", "objective/kl", "train/approx_entropy", "actor/entropy", "policy/policy_entropy",
        "train/grad_norm", "GradNorm", "gradients/global", "train/js_divergence_error",
        "train/token_mult_prob_error", "train/probs_ratio_clamped_min", "logps/chosen", "train/log_prob_diff",
        "sampling/sampling_logp_difference/mean", "anything/at/all/kl_loss", "nll",
    ],
)  # fmt: skip
def test_name_is_watched(name: str) -> None:
    assert is_watched(name)


@pytest.mark.parametrize(
    "name",
    [
        "timing_s/old_log_prob", "timing/train/reward_calculation", "reward_std", "rewards/accuracy/std",
        "performance/policy_and_reference_logprobs_tokens_per_sec_per_gpu", "train/baseline_reward/pct_0",
        "critic/vf_explained_var", "training/rollout_actor_probs_pearson_corr", "actor/lr", "lr",
        "train/num_masked_seqs_by_logprob_error", "training/rollout_probs_diff_std", "epoch",
        "perf/mfu/actor",
        "actor/kl_coef", "response_length/mean", "frac_reward_zero_std", "train/global_valid_toks",
    ],
)  # fmt: skip
def test_name_may_hold_no_number(name: str) -> None:
    assert not is_watched(name)


def table(**metrics: float) -> Table:
    return Table(tuple(Row(name, 1, value) for name, value in metrics.items()))


def test_first_value_that_is_no_number_is_found() -> None:
    found = first_not_finite(table(loss=0.1, entropy=math.nan, lr=math.nan))
    assert found is not None and found.metric == "entropy"
    assert first_not_finite(table(loss=0.1, lr=math.nan)) is None
    named = first_not_finite(table(loss=0.1, mine=math.inf), ["mine"])
    assert named is not None and named.metric == "mine"


def norms(*values: float) -> Table:
    rows = [Row("train/grad_norm", step, value) for step, value in enumerate(values, 1)]
    return Table((*rows, *(Row("loss", step, 0.1) for step in range(1, len(values) + 1))))


@pytest.mark.parametrize(
    ("values", "step"),
    [
        ((math.inf, 1.0, 1.0), None),
        ((1.0, math.nan, 1.0), None),
        ((1.0, 1.0, math.nan), 3),
        ((math.nan, math.nan, 1.0), 1),
        ((math.nan, math.nan), 1),
    ],
    ids=str,
)
def test_skipped_update_is_no_lost_value(values: tuple[float, ...], step: int | None) -> None:
    found = first_not_finite(norms(*values))
    assert (found.step if found is not None else None) == step


def test_what_was_scanned_is_said() -> None:
    assert all_finite(norms(math.inf, 1.0, 1.0)) == (
        "all values of `loss` are finite; "
        "`train/grad_norm` is inf in 1 of 3 logged steps, and a number again after"
    )
    assert all_finite(table(loss=0.1, kl=0.2, lr=1.0)) == (
        "all values of the 2 metrics that jobspec watches are finite (loss, kl)"
    )
    assert all_finite(table(lr=1.0)) == "jobspec read no metric that has to be finite"
