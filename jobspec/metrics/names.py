"""The one table of the names that frameworks give to common metrics.

Report, `status`, tables of sweeps and the check of training health read it. A framework's own name in the
plan comes before these names. The patterns are for training health alone, which looks at every fitting name.
"""

from __future__ import annotations

import re
from collections.abc import Container, Iterable, Mapping

REWARD, LOSS, GRAD_NORM, TOKENS = "reward", "loss", "grad norm", "tokens/s"
FIGURES = (REWARD, LOSS, GRAD_NORM, TOKENS)  # in the order of display
STEP_TIME, PEAK_MEMORY, KL = "step time", "peak memory", "kl"
LIKELY: Mapping[str, tuple[str, ...]] = {
    REWARD: ("reward", "rewards/mean", "reward/mean", "train/reward", "critic/rewards/mean",
             "critic/score/mean", "reward/avg_raw_reward", "rollout/raw_reward", "loss/avg_final_rewards",
             "loss/avg_raw_rewards", "objective/scores"),
    LOSS: ("loss", "train/loss", "actor/loss", "actor/pg_loss", "policy/final_loss", "policy_loss",
           "reduced_train_loss"),
    GRAD_NORM: ("grad_norm", "train/grad_norm", "actor/grad_norm", "policy/grad_norm"),
    KL: ("kl", "train/kl", "actor/kl_loss", "policy/policy_kl", "train/kl_loss", "objective/kl"),
    TOKENS: ("perf/tokens_per_s", "tokens_per_s", "tokens_per_second", "performance/tokens_per_sec",
             "perf/throughput"),
    STEP_TIME: ("step_time_s", "step_time", "perf/step_s", "timing/step"),
    PEAK_MEMORY: ("peak_reserved_gb", "gpu/peak_reserved_GB"),
}  # fmt: skip

# Prefixes of one framework's names: verl has actor and critic, SkyRL policy and reward; the others have none.
FAMILIES = {
    "critic": "actor",
    "reward": "policy",
    "loss": "policy",
    "rollout": "slime",
    "train": "",
    "rewards": "",
    "objective": "",  # PPO and RLOO of TRL
}
GRADIENT_NAME = re.compile(r"(?:^|/)grad_norm$")
LEARNING_RATE = re.compile(r"^(?:train/)?learning_rate$")  # `lr` is often printed with three digits
LOSS_NAME = re.compile(f"^(?:{'|'.join(map(re.escape, LIKELY[LOSS]))}|policy/policy_loss)$")
# What a training makes smaller; every other metric is to rise.
FALLS = re.compile(r"(?:^|[/_@.-])(?:loss|perplexity|ppl|nll|bpb)$", re.IGNORECASE)
KL_NAME = re.compile(r"(?:^|/)kl_(?:loss|penalty)$|^train/kl$")
# Not `objective/kl` of TRL's PPO, the sum over an answer, and not the distance of the engines (`GAPS`).
KL_PER_TOKEN = re.compile(
    r"^(?:train/)?kl$|(?:^|/)(?:kl_loss|kl_penalty|reward_kl_penalty|policy_kl|avg_kl)$"
)
LOG_PROB_NAME = re.compile(r"(?:^|/)(?:mean_)?log_?probs?(?:/mean)?$")
REWARD_NAME = re.compile(f"^(?:{'|'.join(map(re.escape, LIKELY[REWARD]))})$")
# Not those of DPO: both may fall while the margin between them grows.
REWARD_PART = re.compile(r"^(?:train/)?rewards/(?!(?:mean|std|chosen|rejected)$)[^/]+(?:/mean)?$")
SPREAD_NAME = re.compile(r"^(?:train/)?(?:reward_std|frac_reward_zero_std)$")
ENTROPY_NAME = re.compile(r"^(?:train/|policy/|actor/)?(?:policy_|approx_)?entropy$|^actor/entropy_loss$")
LENGTH_NAME = re.compile(
    r"^(?:train/)?(?:completion_length|completions/mean_length|response_length(?:/mean)?|avg_num_tokens"
    r"|mean_gen_tokens_per_sample)$|^generate/avg_num_tokens$"
)
CUT_NAME = re.compile(r"(?:^|/)(?:clip_ratio|clipped_ratio|truncation_rate)$")
LENGTH_CUT = re.compile(r"response_length|completions|truncation")  # other clip ratios are of PPO
# How far apart the training and the sampling policy are -> the value of equal policies, and the distance from
# it that no healthy run has. Sources: verl's FAQ, NeMo-RL's GRPO guide, SkyRL's round-trip test.
GAPS: Mapping[re.Pattern[str], tuple[float, float]] = {
    re.compile(r"(?:^|/)token_mult_prob_error$"): (1.0, 0.05),
    re.compile(r"(?:^|/)(?:sampling_importance_ratio|importance_sampling_ratio/mean)$"): (1.0, 0.1),
    re.compile(r"(?:^|/)rollout_probs_diff_mean$"): (0.0, 0.05),
    re.compile(r"(?:^|/)(?:\w*logp(?:rob)?s?_(?:abs_)?diff(?:erence)?[_/]mean)$"): (0.0, 0.5),
    re.compile(r"(?:^|/)(?:rollout_corr/(?:k3_)?kl|mismatch_(?:k3_)?kl|vllm_kl)$"): (0.0, 0.1),
    re.compile(r"(?:^|/)(?:gen_kl_error|policy_kl_error|js_divergence_error)$"): (0.0, 0.05),
}
OF_HELD_OUT = re.compile(r"(?:.*/)?(?:val|eval|test|validation)[-_/]")
# A score of data that is not trained on, a mean over it: no spread, no best or worst of several answers.
HELD_OUT = re.compile(
    r"^(?!.*[/_-](?:std|length|time|loss|num_turns|min|max|best|worst|maj)(?:[@/]|$))"
    r"(?:val|eval|test|validation)[-_/:].*(?:acc|reward|score|pass_at|pass@)"
)


def own_names(metric_keys: Mapping[str, str]) -> dict[str, str]:
    """The plan's own names by figure: `grad_norm` there is `grad norm` here."""
    return {name.replace("_", " "): key for name, key in metric_keys.items()}


def find_metric(name: str, metric_keys: Mapping[str, str], logged: Container[str]) -> str:
    """The metric that holds a figure, the framework's own name first; empty where none is logged."""
    plan_name = own_names(metric_keys).get(name, "")
    return next((key for key in (plan_name, *LIKELY.get(name, ())) if key in logged), "")


def plain_name(metric: str) -> str:
    """The name without the prefix of a tracker: the Trainer writes `train/reward` and `eval/reward` there."""
    return metric.removeprefix("train/").replace("eval/", "eval_", 1)


def logged_name(asked: str, logged: Iterable[str], any_family: bool = True) -> str:
    """The logged metric that is the asked one: itself, under a tracker's prefix, by another usual name, or
    the only one whose last parts are that name.

    Empty where none is. Without `any_family`, names that other frameworks write do not count.
    """
    known = dict.fromkeys(logged)
    if asked in known:
        return asked
    same = next((name for name in known if plain_name(name) == plain_name(asked)), "")
    group = next((group for group in LIKELY.values() if asked in group), ())
    usual = (name for name in group if any_family or _family(name) == _family(asked))
    ends = ending_in(asked, known) if any_family else []
    return same or next((name for name in usual if name in known), ends[0] if len(ends) == 1 else "")


def ending_in(asked: str, logged: Iterable[str]) -> list[str]:
    """Logged metrics whose last parts are the asked name: `rollout/raw_reward` for `raw_reward`.

    Those of data that is not trained on are others.
    """
    return [
        name for name in dict.fromkeys(logged) if name.endswith(f"/{asked}") and not OF_HELD_OUT.match(name)
    ]


def _family(name: str) -> str:
    prefix = name.partition("/")[0] if "/" in name else ""
    return FAMILIES.get(prefix, prefix)
