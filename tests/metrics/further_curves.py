"""More posted curves: shapes that the first ones do not have, tried once after the code stood.

Of 18, 17 had the right answer at once. A reward that drops at first and climbs back to less than it was is
`Blocked`, not shown, where `Fail` was written down; it is left out.
"""

from __future__ import annotations

import math
import random

from tests.metrics.posted_curves import Posted, answers, every, noisy, powers, ramp, rise, scaled

DRAW = random.Random(0)


def _kinds(text: str = "") -> frozenset[str]:
    return frozenset(text.split())


FURTHER = {
    "trl-sum": Posted(
        "TRL, a sum of rewards, logged every 10 steps",
        "reward",
        "Pass",
        {
            "reward": noisy(ramp({0: 0.8, 0.2: 0.85, 1: 1.9}, 30), 0.15, "a"),
            "kl": noisy(ramp({0: 0, 1: 0.08}, 30), 0.01, "b", 0),
            "completion_length": noisy([220] * 30, 20, "c"),
        },
    ),
    "small-batch": Posted(
        "NeMo-RL, 32 answers a step",
        "train/reward",
        "Pass",
        {"train/reward": answers(ramp({0: 0.3, 1: 0.55}, 100), 32, "b")},
    ),
    "unsloth": Posted(
        "Unsloth, 6 answers a step",
        "reward",
        "Pass",
        {
            "reward": noisy(ramp({0: 0, 1: 1.5}, 250), 1.0, "c"),
            "kl": scaled(powers({0: 1e-4, 0.3: 0.02, 1: 0.4}, 250), 0.5, "d"),
            "reward_std": noisy([0.8] * 250, 0.4, "e", 0),
            "completion_length": noisy([200] * 250, 60, "f"),
        },
    ),
    "sparse-zero": Posted(
        "a sparse reward that is never earned",
        "reward",
        "Fail",
        {"reward": [0.0] * 50, "reward_std": [0.0] * 50, "grad_norm": scaled([0.1] * 50, 0.3, "a")},
        _kinds("constant-reward zero-advantage"),
    ),
    "openrlhf": Posted(
        "OpenRLHF, PPO with a reward model",
        "reward",
        "Pass",
        {
            "reward": noisy(ramp({0: -2, 0.5: 2, 1: 3}, 60), 0.3, "a"),
            "kl": noisy(ramp({0: 0, 1: 0.1}, 60), 0.01, "b", 0),
            "response_length": noisy(ramp({0: 200, 1: 400}, 60), 15, "c"),
        },
    ),
    "val-flat": Posted(
        "verl, AIME as held-out data without a trend",
        "critic/rewards/mean",
        "Pass",
        {
            "critic/rewards/mean": noisy(ramp({0: 0.5, 1: 0.7}, 120), 0.03, "a"),
            "val-core/aime/acc/mean@4": every(
                10, [0.1, 0.117, 0.08, 0.13, 0.092, 0.117, 0.1, 0.083, 0.125, 0.1, 0.108, 0.092]
            ),
        },
    ),
    "epochs": Posted(
        "a reward that swings with the order of the data",
        "reward",
        "Fail",
        {"reward": [0.5 + 0.1 * math.sin(i / 5) + DRAW.gauss(0, 0.04) for i in range(150)]},
    ),
    "ten": Posted(
        "ten steps of a toy task",
        "reward",
        "Pass",
        {"reward": [0.2, 0.25, 0.3, 0.38, 0.4, 0.45, 0.5, 0.55, 0.56, 0.6]},
    ),
    "hack": Posted(
        "the shortest answer earns the reward",
        "reward",
        "Pass",
        {
            "reward": noisy(rise(0.3, 0.95, 0.4, 0.08, 100), 0.03, "a"),
            "completions/mean_length": noisy(ramp({0: 300, 0.4: 8, 1: 2}, 100), 1, "b", 1),
        },
        _kinds("length-collapse"),
    ),
    "base-learns-stop": Posted(
        "a base model that learns to stop",
        "critic/rewards/mean",
        "Pass",
        {
            "critic/rewards/mean": noisy(rise(0.05, 0.6, 0.2, 0.05, 100), 0.03, "a"),
            "response_length/mean": noisy(ramp({0: 1020, 0.2: 180, 1: 120}, 100), 8, "b"),
            "response_length/clip_ratio": noisy(ramp({0: 0.98, 0.2: 0.05, 1: 0.01}, 100), 0.01, "c", 0, 1),
        },
    ),
    "kl-verl-clamped": Posted(
        "BeastyZ/ConvSearch-R1#6, verl, KL clamped at 10",
        "critic/score/mean",
        "Fail",
        {
            "critic/score/mean": noisy(ramp({0: 0.3, 0.5: 0.55, 0.6: 0.02, 1: 0.01}, 200), 0.02, "a", 0),
            "actor/kl_loss": [
                min(10, x) for x in scaled(powers({0: 1e-3, 0.45: 0.1, 0.6: 50, 1: 1e3}, 200), 0.2, "b")
            ],
            "actor/entropy": noisy(ramp({0: 0.5, 0.5: 0.2, 0.6: 7, 1: 9}, 200), 0.05, "c"),
            "val-core/x/acc/mean@1": every(20, [0.3, 0.36, 0.42, 0.47, 0.5, 0.53, 0.01, 0, 0, 0, 0]),
        },
        _kinds("reward-collapse kl-explosion entropy-explosion held-out-fell"),
    ),
    "two-rewards-rise": Posted(
        "TRL, the format first, accuracy later",
        "reward",
        "Pass",
        {
            "reward": noisy(ramp({0: 0.2, 0.1: 1.0, 1: 1.5}, 80), 0.05, "a"),
            "rewards/format_reward/mean": noisy(ramp({0: 0.1, 0.1: 0.95, 1: 0.99}, 80), 0.01, "b", 0, 1),
            "rewards/accuracy_reward/mean": noisy(ramp({0: 0.1, 0.1: 0.05, 1: 0.5}, 80), 0.03, "c", 0, 1),
            "rewards/length_penalty/mean": noisy(ramp({0: -0.4, 1: -0.05}, 80), 0.03, "d"),
        },
    ),
    "noise-small-n": Posted(
        "15 steps that show nothing", "reward", "Fail", {"reward": noisy([0.3] * 15, 0.08, "q")}
    ),
    "short-steps": Posted("three steps", "reward", "Blocked", {"reward": [0.1, 0.3, 0.5]}),
    "held-out-overfit": Posted(
        "overfitting: the held-out score falls",
        "reward",
        "Fail",
        {
            "reward": noisy(ramp({0: 0.4, 1: 0.95}, 200), 0.02, "a"),
            "eval_reward": every(20, [0.4, 0.45, 0.44, 0.4, 0.36, 0.33, 0.3, 0.27, 0.25, 0.24]),
        },
        _kinds("held-out-fell"),
    ),
    "loss-down": Posted(
        "a reward that falls slowly",
        "reward",
        "Fail",
        {"reward": noisy(ramp({0: 0.6, 1: 0.35}, 80), 0.03, "a")},
        _kinds(),
    ),
    "nemo-drop": Posted(
        "NeMo-RL, the end is below the peak",
        "train/reward",
        "Pass",
        {
            "train/reward": noisy(ramp({0: 0.25, 0.8: 0.6, 1: 0.52}, 60), 0.03, "a"),
            "train/grad_norm": scaled([0.5] * 60, 0.4, "b"),
            "train/approx_entropy": noisy(ramp({0: 0.5, 1: 0.3}, 60), 0.01, "c"),
            "train/gen_kl_error": scaled([4e-4] * 60, 0.3, "d"),
            "train/token_mult_prob_error": noisy([1.015] * 60, 0.003, "e"),
            "validation/accuracy": every(10, [0.26, 0.4, 0.5, 0.57, 0.6, 0.58]),
        },
    ),
}
