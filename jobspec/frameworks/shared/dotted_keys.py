"""Overrides as dotted keys, for frameworks whose settings are one tree."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def flat(overrides: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Values by dotted key: `{trainer: {epochs: 1}}` as `{trainer.epochs: 1}`. An empty mapping stays."""
    leaves: dict[str, Any] = {}
    for key, value in overrides.items():
        name = f"{prefix}{key}"
        leaves |= flat(value, f"{name}.") if isinstance(value, Mapping) and value else {name: value}
    return leaves
