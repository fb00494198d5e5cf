"""Reward functions of the examples, as one would keep them in a repository of one's own.

TRL calls a reward with the completions of one step and every column of the data set, and takes one
number for each completion. `quickstart.yaml` names `digit_share` and proves that this file is used.
"""

from __future__ import annotations

from typing import Any


def text_of(completion: Any) -> str:
    """Chat data gives a list of messages for each completion, plain data a text."""
    return completion if isinstance(completion, str) else completion[-1]["content"]


def digit_share(completions: list[Any], **columns: Any) -> list[float]:
    """Share of digits among a completion's characters: even random weights can learn this in seconds."""
    texts = [text_of(completion) for completion in completions]
    return [sum(char.isdigit() for char in text) / max(1, len(text)) for text in texts]


def constant(completions: list[Any], **columns: Any) -> list[float]:
    """The same for everybody: nothing to learn from. Level `learning` must fail with it."""
    return [0.5] * len(completions)


def broken(completions: list[Any], **columns: Any) -> list[float]:
    """Fails on purpose: shows how the cause of a failing run is reported."""
    raise ValueError("this reward is broken on purpose")
