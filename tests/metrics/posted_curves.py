"""Curves of RL runs, drawn after what people post, with the answers written down before any code saw them.

Each curve names the thread whose shape, metric names and magnitudes it has. `learning` is the right status of
the learning deliverable; `shows` are the kinds of the findings, neither more nor fewer.
"""

from __future__ import annotations

import math
import random
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise

Values = list[float]


@dataclass(frozen=True)
class Posted:
    """One posted run: values of each metric by step; a sparse metric has a dict of them."""

    source: str
    learnt: str
    learning: str
    metrics: Mapping[str, Values | dict[int, float]]
    shows: frozenset[str] = frozenset()


def ramp(places: Mapping[float, float], count: int) -> Values:
    """Straight lines through (share of the run, value)."""
    corners, values = sorted(places.items()), []
    for i in range(count):
        x = i / (count - 1)
        (x0, y0), (x1, y1) = next((a, b) for a, b in pairwise(corners) if x <= b[0])
        values.append(y0 + (y1 - y0) * (x - x0) / (x1 - x0))
    return values


def powers(places: Mapping[float, float], count: int) -> Values:
    """Lines on a logarithmic scale."""
    return [math.exp(v) for v in ramp({x: math.log(y) for x, y in places.items()}, count)]


def rise(low: float, high: float, middle: float, width: float, count: int) -> Values:
    """A sigmoid; `middle` and `width` are shares of the run."""
    return [low + (high - low) / (1 + math.exp((middle - i / count) / width)) for i in range(count)]


def noisy(values: Values, noise: float, seed: str, low: float = -math.inf, high: float = math.inf) -> Values:
    draw = random.Random(seed)
    return [min(high, max(low, value + draw.gauss(0, noise))) for value in values]


def scaled(values: Values, noise: float, seed: str) -> Values:
    """Noise in proportion to the value."""
    draw = random.Random(seed)
    return [value * math.exp(draw.gauss(0, noise)) for value in values]


def answers(shares: Values, count: int, seed: str) -> Values:
    """The shares of `count` right or wrong answers."""
    draw = random.Random(seed)
    return [sum(draw.random() < share for _ in range(count)) / count for share in shares]


def every(steps: int, values: Values) -> dict[int, float]:
    return {steps * i: value for i, value in enumerate(values)}


def spiked(values: Values, spikes: Mapping[int, float]) -> Values:
    return [spikes.get(step, value) for step, value in enumerate(values, 1)]


def _kinds(text: str) -> frozenset[str]:
    return frozenset(text.split())


def _posted() -> dict[str, Posted]:
    return {
        "kl-and-reward-collapse": Posted(
            "huggingface/open-r1#257", "reward", "Fail",
            {
                "reward": noisy(ramp({0: 0.9, 0.45: 1.6, 0.7: 0.15, 0.8: 0.0, 1: 0.0}, 150), 0.02, "a", 0),
                "kl": scaled(powers({0: 1e-4, 0.5: 0.2, 1: 7000}, 150), 0.1, "b"),
                "completion_length": noisy(ramp({0: 860, 0.5: 750, 0.7: 1024, 1: 1024}, 150), 8, "c"),
                "reward_std": noisy(ramp({0: 0.78, 0.45: 0.68, 0.8: 0.01, 1: 0.01}, 150), 0.002, "d", 1e-4),
            },
            _kinds("reward-collapse kl-explosion"),
        ),
        "one-reward-dies": Posted(
            "huggingface/open-r1#255", "reward", "Pass",
            {
                "reward": noisy(ramp({0: 0.70, 0.3: 0.95, 1: 1.05}, 60), 0.02, "a"),
                "rewards/accuracy_reward": [
                    0.0 if i > 35 else v
                    for i, v in enumerate(noisy(ramp({0: 0.16, 0.5: 0.01, 1: 0}, 60), 0.01, "b", 0))
                ],
                "rewards/format_reward": noisy(ramp({0: 0.48, 0.3: 0.99, 1: 1}, 60), 0.01, "c", 0, 1),
                "completion_length": noisy(ramp({0: 387, 0.3: 60, 1: 25}, 60), 3, "d"),
            },
            _kinds("reward-collapse length-collapse"),
        ),
        "no-advantage": Posted(
            "huggingface/trl#3857", "reward", "Fail",
            {
                "reward": noisy([3.0] * 40, 0.6, "a"), "reward_std": [0.0] * 40, "grad_norm": [0.0] * 40,
                "frac_reward_zero_std": [1.0] * 40, "loss": [0.0] * 40,
            },
            _kinds("zero-gradient zero-advantage"),
        ),
        "steady-then-nothing": Posted(
            "huggingface/trl#3452", "reward", "Fail",
            {"reward": noisy([1.8] * 70, 0.12, "a") + [0.0] * 50, "kl": noisy([5.3e-4] * 120, 3e-6, "b")},
            _kinds("reward-collapse"),
        ),
        "verl-gsm8k": Posted(
            "verl GRPO on GSM8K, 0.5B", "critic/rewards/mean", "Pass",
            {
                "critic/rewards/mean": answers(rise(0.02, 0.56, 0.3, 0.08, 105), 1024, "a"),
                "actor/entropy": scaled(powers({0: 0.5, 1: 0.12}, 105), 0.03, "b"),
                "actor/kl_loss": [0.0, *scaled(rise(1e-4, 0.06, 0.4, 0.1, 104), 0.1, "c")],
                "actor/grad_norm": scaled([0.4] * 105, 0.3, "d"),
                "response_length/mean": noisy(ramp({0: 256, 0.3: 180, 1: 230}, 105), 5, "e"),
                "response_length/clip_ratio": noisy(ramp({0: 0.6, 0.2: 0.05, 1: 0.02}, 105), 0.01, "f", 0, 1),
                "val-core/openai/gsm8k/acc/mean@1": every(15, [0.0, 0.05, 0.31, 0.45, 0.5, 0.52, 0.51, 0.54]),
            },
        ),
        "skyrl-gsm8k": Posted(
            "SkyRL GRPO on GSM8K", "reward/avg_raw_reward", "Pass",
            {
                "reward/avg_raw_reward": noisy(
                    [0.85 - 0.6 * math.exp(-i / 12) for i in range(60)], 0.02, "a"
                ),
                "policy/rollout_train_logprobs_abs_diff_mean": noisy([0.02] * 60, 0.003, "b"),
                "policy/policy_entropy": noisy(ramp({0: 0.5, 1: 0.2}, 60), 0.02, "c"),
                "policy/grad_norm": scaled([0.2] * 60, 0.2, "d"),
                "eval/openai_gsm8k/avg_score": every(10, [0.28, 0.55, 0.7, 0.75, 0.78, 0.8]),
            },
        ),
        "nemo-rl-22-steps": Posted(
            "a NeMo-RL run of 22 steps, held-out score rising", "train/reward", "Pass",
            {
                "train/reward": noisy(ramp({0: 0.2, 0.6: 0.5, 1: 0.6}, 22), 0.045, "k"),
                "train/kl_penalty": noisy(ramp({0: 0, 1: 0.02}, 22), 0.001, "b", 0),
                "train/token_mult_prob_error": noisy([1.013] * 22, 0.002, "c"),
                "validation/accuracy": every(5, [0.21, 0.3, 0.39, 0.48, 0.52]),
            },
        ),
        "sudden-collapse": Posted(
            "PeterGriffinJin/Search-R1#92", "critic/rewards/mean", "Fail",
            {
                "critic/rewards/mean": noisy(
                    ramp({0: 0.2, 0.5: 0.42, 0.78: 0.44, 0.81: 0, 1: 0}, 200), 0.02, "a", 0
                ),
                "actor/grad_norm": scaled(powers({0: 0.5, 0.75: 0.6, 0.82: 60, 1: 90}, 200), 0.3, "b"),
            },
            _kinds("reward-collapse gradient-explosion"),
        ),
        "held-out-falls": Posted(
            "AgentR1/Agent-R1#8", "critic/rewards/mean", "Fail",
            {
                "critic/rewards/mean": noisy(ramp({0: 0.2, 0.5: 0.42, 1: 0.5}, 110), 0.02, "a"),
                "val/test_score/hotpotqa": every(
                    10, [0.16, 0.24, 0.31, 0.36, 0.39, 0.4, 0.38, 0.11, 0.04, 0.03, 0.05, 0.03]
                ),
            },
            _kinds("held-out-fell"),
        ),
        "entropy-explodes": Posted(
            "verl-project/verl#2738", "critic/rewards/mean", "Fail",
            {
                "critic/rewards/mean": noisy(ramp({0: 0.35, 0.4: 0.5, 0.7: 0.3, 1: 0.15}, 150), 0.02, "a"),
                "actor/entropy": scaled(powers({0: 0.4, 0.5: 0.5, 1: 6}, 150), 0.05, "b"),
                "response_length/clip_ratio": noisy(
                    ramp({0: 0.15, 0.5: 0.2, 0.8: 0.98, 1: 0.99}, 150), 0.01, "c", 0, 1
                ),
            },
            _kinds("entropy-explosion length-cap reward-collapse"),
        ),
        "entropy-rises-slowly": Posted(
            "rllm-org/rllm#116", "critic/rewards/mean", "Pass",
            {
                "critic/rewards/mean": noisy(ramp({0: 0.4, 1: 0.6}, 300), 0.03, "a"),
                "actor/entropy": noisy(ramp({0: 0.3, 1: 0.8}, 300), 0.02, "b"),
            },
        ),
        "engines-drift-apart": Posted(
            "NVIDIA-NeMo/RL#1801", "train/reward", "Pass",
            {
                "train/reward": noisy(rise(0.3, 0.55, 0.4, 0.1, 120), 0.02, "a"),
                "train/token_mult_prob_error": [
                    1 + v for v in scaled(powers({0: 0.015, 0.5: 0.03, 1: 3}, 120), 0.2, "b")
                ],
            },
            _kinds("off-policy-gap"),
        ),
        "mismatch-kl": Posted(
            "sail-sg/Precision-RL#10", "critic/rewards/mean", "Pass",
            {
                "critic/rewards/mean": noisy(ramp({0: 0.3, 0.6: 0.6, 1: 0.5}, 200), 0.02, "a"),
                "rollout_corr/kl": scaled(powers({0: 1e-3, 0.6: 5e-3, 1: 1}, 200), 0.2, "b"),
            },
            _kinds("off-policy-gap"),
        ),
        "kl-and-entropy-rise": Posted(
            "verl-project/verl#651", "critic/rewards/mean", "Pass",
            {
                "critic/rewards/mean": noisy(ramp({0: 0.1, 1: 0.45}, 200), 0.03, "a"),
                "actor/kl_loss": noisy(ramp({0: 0, 1: 0.3}, 200), 0.01, "b", 0),
                "actor/entropy_loss": noisy(ramp({0: 0.6, 1: 0.9}, 200), 0.03, "c"),
            },
        ),
        "all-goes-wrong": Posted(
            "Gen-Verse/OpenClaw-RL#116", "critic/rewards/mean", "Fail",
            {
                "critic/rewards/mean": noisy(ramp({0: 0.5, 1: 0.1}, 100), 0.03, "a"),
                "actor/entropy": scaled(powers({0: 0.3, 1: 4}, 100), 0.05, "b"),
                "actor/kl_loss": scaled(powers({0: 0.005, 1: 6}, 100), 0.1, "c"),
                "response_length/mean": noisy(powers({0: 900, 1: 60}, 100), 5, "d"),
            },
            _kinds("entropy-explosion kl-explosion length-collapse reward-fell"),
        ),
        "shorter-answers": Posted(
            "hkust-nlp/simpleRL-reason#65", "critic/rewards/mean", "Pass",
            {
                "critic/rewards/mean": noisy([0.65 - 0.3 * math.exp(-i / 30) for i in range(150)], 0.03, "a"),
                "response_length/mean": noisy(ramp({0: 620, 0.3: 420, 1: 350}, 150), 10, "b"),
                "val-core/math/acc/mean@1": every(20, [0.33, 0.45, 0.5, 0.55, 0.56, 0.58, 0.57, 0.59]),
            },
        ),
        "length-explodes": Posted(
            "open-r1, answers grow to the limit", "reward", "Fail",
            {
                "reward": noisy(ramp({0: 0.5, 0.3: 0.55, 0.8: 0.03, 1: 0.02}, 100), 0.02, "a", 0),
                "completions/mean_length": noisy(ramp({0: 600, 0.8: 3550, 1: 3580}, 100), 20, "b"),
                "completions/clipped_ratio": noisy(ramp({0: 0.1, 0.8: 0.97, 1: 0.99}, 100), 0.01, "c", 0, 1),
            },
            _kinds("reward-collapse length-cap"),
        ),
        "never-learns": Posted(
            "ml-explore/mlx-examples#1233", "reward", "Fail",
            {"reward": noisy([0.6] * 300, 0.15, "a"), "grad_norm": scaled([0.2] * 300, 0.4, "b")},
        ),
        "gradient-spikes-recover": Posted(
            "XueZeyue/DanceGRPO#55, the run that recovers", "reward", "Pass",
            {
                "reward": noisy(
                    ramp({0: 0.2, 0.4: 0.4, 0.45: 0.3, 0.5: 0.42, 1: 0.6}, 150), 0.02, "a"
                ),
                "grad_norm": spiked(scaled([0.3] * 150, 0.2, "b"), {61: 40.0, 62: 90.0, 118: 30.0}),
            },
        ),
        "gradient-explodes": Posted(
            "XueZeyue/DanceGRPO#55, the run that does not", "reward", "Fail",
            {
                "reward": noisy(ramp({0: 0.3, 0.4: 0.5, 0.5: 0.25, 1: 0.2}, 150), 0.02, "a"),
                "grad_norm": scaled(powers({0: 0.3, 0.4: 0.4, 0.5: 50, 1: 60}, 150), 0.3, "b"),
            },
            _kinds("gradient-explosion reward-collapse"),
        ),
        "one-source-at-zero": Posted(
            "rllm-org/rllm#52", "critic/rewards/mean", "Pass",
            {
                "critic/rewards/mean": noisy(rise(0.1, 0.6, 0.4, 0.1, 80), 0.02, "a"),
                "val/test_score/gsm8k": every(20, [0.1, 0.3, 0.5, 0.58]),
                "val/test_score/": every(20, [0.0, 0.0, 0.0, 0.0]),
            },
            _kinds("held-out-zero"),
        ),
        "late-collapse": Posted(
            "PrimeIntellect-ai/prime-rl#964", "reward/mean", "Fail",
            {
                "reward/mean": noisy(
                    ramp({0: 0.3, 0.4: 0.85, 0.8: 0.9, 0.85: 0.06, 1: 0.04}, 3000), 0.05, "a", 0
                ),
            },
            _kinds("reward-collapse"),
        ),
        "dapo": Posted(
            "DAPO, AIME, rewards of -1 and 1", "critic/rewards/mean", "Pass",
            {
                "critic/rewards/mean": noisy([0.35 - 1.0 * math.exp(-i / 60) for i in range(200)], 0.08, "a"),
                "actor/entropy": noisy(ramp({0: 1.1, 0.2: 0.4, 1: 0.5}, 200), 0.03, "b"),
                "response_length/mean": noisy(ramp({0: 700, 1: 4200}, 200), 60, "c"),
                "val-core/math_dapo/acc/mean@32": every(
                    20, [0.02, 0.08, 0.14, 0.2, 0.25, 0.29, 0.31, 0.35, 0.36, 0.4]
                ),
            },
        ),
        "entropy-collapses": Posted(
            "DAPO's paper, without the higher clip", "critic/rewards/mean", "Pass",
            {
                "critic/rewards/mean": noisy(rise(0.1, 0.5, 0.2, 0.06, 200), 0.03, "a"),
                "actor/entropy": scaled(powers({0: 1.0, 0.3: 0.04, 1: 0.015}, 200), 0.05, "b"),
            },
            _kinds("entropy-collapse"),
        ),
        "curriculum": Posted(
            "harder data from half of the run on", "train/reward", "Pass",
            {"train/reward": noisy(ramp({0: 0.2, 0.5: 0.7, 0.51: 0.38, 1: 0.62}, 120), 0.03, "a")},
        ),
    }  # fmt: skip


POSTED = _posted()
