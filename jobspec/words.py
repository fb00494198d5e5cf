"""Words for messages: values, alternatives and near misses."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from typing import Any


def shown(value: Any, limit: int = 60) -> str:
    """A value for a message: JSON in backticks, cut when long."""
    text = json.dumps(value, ensure_ascii=False, default=str)
    return f"`{text if len(text) <= limit else text[: limit - 1] + '…'}`"


def one_of(names: Iterable[str]) -> str:
    """`a`, `b` or `c`."""
    *head, last = [f"`{name}`" for name in names] or ["nothing"]
    return f"{', '.join(head)} or {last}" if head else last


def some(names: Sequence[str], most: int) -> str:
    """The first `most` names, and how many more there are: `a, b and 3 more`."""
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(names[:most]) + more


def nearest(name: str, known: Iterable[str], cutoff: float = 0.65) -> str | None:
    """The known name closest to `name`; None when none is close."""
    import difflib  # only a mistake needs it

    names = list(known)
    lowered = {candidate.lower().replace("-", "_"): candidate for candidate in names}
    exact = lowered.get(name.lower().replace("-", "_"))
    close = difflib.get_close_matches(name, names, n=1, cutoff=cutoff)
    return exact or (close[0] if close else None)


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """`did you mean X` or the empty text."""
    close = nearest(name, known)
    return f"did you mean `{close}`?" if close else ""


def install_command(extra: str) -> str:
    """The command that adds an extra to the installation which runs now, from where that one came.

    pip notes the folder or the URL of an installation that is not of an index (PEP 610, direct_url.json).
    """
    import shlex
    import sys
    from importlib.metadata import PackageNotFoundError, distribution

    what = "jobspec-rl"
    try:
        noted = json.loads(distribution(what).read_text("direct_url.json") or "{}")
    except (PackageNotFoundError, ValueError):
        noted = {}
    url = str(noted.get("url", ""))
    folder = url.removeprefix("file://") if url.startswith("file:///") and "dir_info" in noted else ""
    target = f"{folder or what}[{extra}]"
    return f"{shlex.quote(sys.executable)} -m pip install {shlex.quote(target)}"
