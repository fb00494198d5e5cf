"""Reward functions in verl's form: `reward.custom_reward_function.path` and `.name` choose one."""

from __future__ import annotations

from typing import Any


def digit_share(data_source: str, solution_str: str, ground_truth: str, **more: Any) -> float:
    """Share of digits in an answer: even random weights can learn this within some steps."""
    text = solution_str.strip()
    return sum(char.isdigit() for char in text) / max(1, len(text))


def broken(data_source: str, solution_str: str, ground_truth: str, **more: Any) -> float:
    """Fails on purpose: shows how the cause of a failing run is reported."""
    raise ValueError("this reward is broken on purpose")
