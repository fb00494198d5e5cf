"""Rule rewards for the TRL driver: the built-in ones, and functions from a user's file.

A reward is called as TRL calls it: `f(completions=[...], prompts=[...], **columns)`, and answers with
one number a completion. Standard library only; runs in every training worker.
"""

from __future__ import annotations

import importlib.util
import math
import sys
from pathlib import Path
from typing import Any, Callable, List, Mapping, Sequence

Reward = Callable[..., List[float]]


class RewardError(Exception):
    """A reward function that is missing, breaks, or answers with something else than numbers."""


def digits(completions: Sequence[Any], **columns: Any) -> List[float]:
    """Share of digits in a completion, 0 to 1; 0 for an empty one. Learnable without a warm-up."""
    texts = [completion_text(completion) for completion in completions]
    return [sum(char.isdigit() for char in text) / len(text) if text else 0.0 for text in texts]


def addition(completions: Sequence[Any], answer: Sequence[str], **columns: Any) -> List[float]:
    """1 for a completion that is exactly the data's `answer`, else 0."""
    texts = [completion_text(completion).strip() for completion in completions]
    return [float(text == want) for text, want in zip(texts, answer)]  # noqa: B905 - Python 3.9


BUILT_IN: Mapping[str, Reward] = {"digits": digits, "addition": addition}


def completion_text(completion: Any) -> str:
    """The generated text, of a plain completion or of a chat's last message."""
    if isinstance(completion, str):
        return completion
    return str(completion[-1].get("content") or "") if completion else ""


def load_reward(spec: Mapping[str, str]) -> Reward:
    """The reward that `{"builtin": NAME}` or `{"file": PATH, "function": NAME}` names, checked.

    Raises: RewardError when there is no such file or function.
    """
    if "builtin" in spec:
        name = spec["builtin"]
        if name not in BUILT_IN:
            raise RewardError(f"no built-in reward `{name}`; there are: {', '.join(sorted(BUILT_IN))}")
        return checked(name, BUILT_IN[name])
    return checked(spec["function"], _from_file(Path(spec["file"]), spec["function"]))


def _from_file(path: Path, function: str) -> Reward:
    loader = importlib.util.spec_from_file_location(f"jobspec_reward_{path.stem}", path)
    if loader is None or loader.loader is None or not path.is_file():
        raise RewardError(f"reward file `{path}` is not there or not a Python file")
    module = importlib.util.module_from_spec(loader)
    sys.modules[loader.name] = module  # dataclasses and pickling look the module up by name
    loader.loader.exec_module(module)
    reward = getattr(module, function, None)
    if not callable(reward):
        raise RewardError(f"reward file `{path}` has no function `{function}`")
    return reward  # type: ignore[no-any-return]


def checked(name: str, reward: Reward) -> Reward:
    """`reward` with its answers checked, so that a bad one is named instead of training on it."""

    def call(completions: Sequence[Any], **columns: Any) -> List[float]:
        try:
            values = reward(completions=completions, **columns)
        except Exception as cause:
            raise RewardError(f"reward function `{name}` failed: {describe(cause)}") from cause
        return check_values(name, values, len(completions))

    call.__name__ = name  # TRL names the metric `rewards/<name>/mean` after it
    return call


def check_values(name: str, values: Any, count: int) -> List[float]:
    """`values` as floats. Raises: RewardError unless there are `count` finite numbers."""
    try:
        numbers = [float(value) for value in values]
    except (TypeError, ValueError) as cause:
        raise RewardError(
            f"reward function `{name}` must return a list of numbers: {describe(cause)}"
        ) from cause
    if len(numbers) != count:
        raise RewardError(f"reward function `{name}` returned {len(numbers)} values for {count} completions")
    if not all(map(math.isfinite, numbers)):
        raise RewardError(f"reward function `{name}` returned a value that is not finite")
    return numbers


def describe(error: BaseException) -> str:
    """`ValueError: text`, on one line."""
    text = " ".join(str(error).split())
    return f"{type(error).__name__}: {text}" if text else type(error).__name__
