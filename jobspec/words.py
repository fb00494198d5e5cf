"""Words for messages: values, alternatives and near misses."""

from __future__ import annotations

import difflib
import json
from collections.abc import Iterable
from typing import Any


def shown(value: Any, limit: int = 60) -> str:
    """A value for a message: JSON in backticks, cut when long."""
    text = json.dumps(value, ensure_ascii=False, default=str)
    return f"`{text if len(text) <= limit else text[: limit - 1] + '…'}`"


def one_of(names: Iterable[str]) -> str:
    """`a`, `b` or `c`."""
    *head, last = [f"`{name}`" for name in names] or ["nothing"]
    return f"{', '.join(head)} or {last}" if head else last


def nearest(name: str, known: Iterable[str], cutoff: float = 0.65) -> str | None:
    """The known name closest to `name`; None when none is close."""
    names = list(known)
    lowered = {candidate.lower().replace("-", "_"): candidate for candidate in names}
    exact = lowered.get(name.lower().replace("-", "_"))
    close = difflib.get_close_matches(name, names, n=1, cutoff=cutoff)
    return exact or (close[0] if close else None)


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """`did you mean X` or the empty text."""
    close = nearest(name, known)
    return f"did you mean `{close}`?" if close else ""
