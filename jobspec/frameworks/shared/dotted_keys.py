"""Overrides as dotted keys, for frameworks whose settings are one tree."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def flat(overrides: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """`{trainer: {epochs: 1}}` and `{trainer.epochs: 1}` mean the same; an empty mapping is a value."""
    found: dict[str, Any] = {}
    for key, value in overrides.items():
        name = f"{prefix}{key}"
        found |= flat(value, f"{name}.") if isinstance(value, Mapping) and value else {name: value}
    return found
