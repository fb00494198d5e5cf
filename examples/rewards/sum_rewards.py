"""The reward of `smollm2_grpo.yaml`: answer a sum with the number and nothing else."""

from __future__ import annotations

import re
from typing import Any

from tiny_rewards import text_of

NUMBER = re.compile(r"\d+\.?\Z")


def bare_sum(completions: list[Any], answer: list[str], **columns: Any) -> list[float]:
    """0.3 for a bare number, 1 for the right one: the form is learned first, then the sum."""
    texts = [text_of(completion).strip() for completion in completions]
    return [
        1.0 if text.rstrip(".") == right else 0.3 if NUMBER.fullmatch(text) else 0.0
        for text, right in zip(texts, answer, strict=True)
    ]
