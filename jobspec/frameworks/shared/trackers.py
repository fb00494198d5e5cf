"""Trackers, such as wandb, beside the one whose files jobspec reads."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator
from typing import Any

from jobspec.finding import Finding, error, warning
from jobspec.frameworks.base import Context
from jobspec.words import did_you_mean, one_of

WANDB, WANDB_KEY, WANDB_MODE = "wandb", "WANDB_API_KEY", "WANDB_MODE"


def tracker_names(value: Any) -> tuple[str, ...]:
    """The names in `[console, wandb]`, `wandb` or the text of a list; () for anything else."""
    words = re.findall(r"\w+", value) if isinstance(value, str) else value
    if not isinstance(words, list) or not all(isinstance(word, str) for word in words):
        return ()
    return tuple(dict.fromkeys(words))


def beside(own: Collection[str], value: Any) -> tuple[str, ...]:
    """jobspec's own trackers, then those that the spec adds."""
    return (*own, *(name for name in tracker_names(value) if name not in own))


def check_trackers(
    context: Context, rule: str, key: str, value: Any, known: Collection[str]
) -> Iterator[Finding]:
    """Names that the framework does not know, and a wandb that will ask for a key in vain."""
    names, path = tracker_names(value), f"train.overrides.{key}"
    if not names:
        yield error(rule, f"`{key}` names no tracker", fix=f"use a list of {one_of(known)}", path=path)
    for name in names:
        if name not in known:
            fix = did_you_mean(name, known) or f"use {one_of(known)}"
            yield error(rule, f"there is no tracker `{name}`", "its name ends the run", fix, path=path)
    offline = {**context.cluster.env, **context.spec.container.env}.get(WANDB_MODE) in ("offline", "disabled")
    if WANDB in names and WANDB_KEY not in context.spec.secrets and not offline:
        what, why = (
            f"wandb is asked for, and `secrets` has no `{WANDB_KEY}`",
            "without a key wandb ends the run",
        )
        fix = f"add `{WANDB_KEY}` to `secrets`, or set `container.env.{WANDB_MODE}: offline`"
        yield warning(rule, what, why, fix, path=path)
