"""The one table of the names that frameworks give to common metrics.

Report, `status`, tables of sweeps and the check of training health read it. A framework's own name in the
plan comes before these names.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping

REWARD, LOSS, GRAD_NORM, TOKENS = "reward", "loss", "grad norm", "tokens/s"
FIGURES = (REWARD, LOSS, GRAD_NORM, TOKENS)  # in the order of display
STEP_TIME, PEAK_MEMORY, KL = "step time", "peak memory", "kl"
LIKELY: Mapping[str, tuple[str, ...]] = {
    REWARD: ("reward", "rewards/mean", "reward/mean", "train/reward", "critic/rewards/mean",
             "critic/score/mean", "reward/avg_raw_reward", "rollout/raw_reward"),
    LOSS: ("loss", "train/loss", "actor/loss", "actor/pg_loss", "policy/final_loss", "policy_loss"),
    GRAD_NORM: ("grad_norm", "train/grad_norm", "actor/grad_norm", "policy/grad_norm"),
    KL: ("kl", "train/kl", "actor/kl_loss", "policy/policy_kl", "train/kl_loss", "objective/kl"),
    TOKENS: ("perf/tokens_per_s", "tokens_per_s", "tokens_per_second", "performance/tokens_per_sec",
             "perf/throughput"),
    STEP_TIME: ("step_time_s", "step_time", "perf/step_s", "timing/step"),
    PEAK_MEMORY: ("peak_reserved_gb", "gpu/peak_reserved_GB"),
}  # fmt: skip

# Prefixes of one framework's names: verl has actor and critic, SkyRL policy and reward; the others have none.
FAMILIES = {"critic": "actor", "reward": "policy", "rollout": "slime", "train": "", "rewards": ""}


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
    """The logged metric that is the asked one: itself, under a tracker's prefix, or by another usual name.

    Empty where none is. Without `any_family`, names that other frameworks write do not count.
    """
    known = dict.fromkeys(logged)
    if asked in known:
        return asked
    same = next((name for name in known if plain_name(name) == plain_name(asked)), "")
    group = next((group for group in LIKELY.values() if asked in group), ())
    usual = (name for name in group if any_family or _family(name) == _family(asked))
    return same or next((name for name in usual if name in known), "")


def _family(name: str) -> str:
    prefix = name.partition("/")[0] if "/" in name else ""
    return FAMILIES.get(prefix, prefix)
