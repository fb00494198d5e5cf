"""Relative paths of a base file: they are meant from its own folder, not from that of the spec above it."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path as FilePath
from typing import Any

from jobspec.spec.interpolate import escape
from jobspec.spec.paths import parse_path

# Keys whose text is always a path, and keys where it is one if such a file is there.
_ALWAYS = frozenset(
    {
        "repos.*.path", "model.path", "container.mounts.*.source",
        "services.*.container.mounts.*.source", "checkpoint.dir", "hf_cache.home",
        "coverage.not_applicable.*.evidence",
    }
)  # fmt: skip
_IF_THERE = frozenset(
    {
        "data.*.source", "container.image", "train.command.*", "services.*.command.*",
        "services.*.container.image", "metrics.baseline", "pipelines.*.metrics.baseline",
    }
)  # fmt: skip


def beside(data: dict[str, Any], folder: FilePath, top: FilePath) -> dict[str, Any]:
    """`data` of a file in `folder`, its relative paths made absolute; unchanged in the folder `top`."""
    if os.path.realpath(folder) == os.path.realpath(top):
        return data
    changed = {key: _anchored(value, (key,), folder) for key, value in data.items()}
    if isinstance(variants := changed.get("variants"), Mapping):
        changed["variants"] = {name: _anchored(value, (), folder) for name, value in variants.items()}
    if isinstance(sweep := changed.get("sweep"), Mapping):
        changed["sweep"] = _sweep(sweep, folder)
    return changed


def _sweep(sweep: Mapping[str, Any], folder: FilePath) -> dict[str, Any]:
    """The values of each dotted key, in the grid, the list and what is left out."""

    def point(value: Any, listed: bool = False) -> Any:
        if not isinstance(value, Mapping):
            return value
        return {key: _swept(item, key, folder, listed) for key, item in value.items()}

    return {
        key: point(value, listed=True)
        if key == "grid"
        else [point(item) for item in value]
        if isinstance(value, list)
        else value
        for key, value in sweep.items()
    }


def _swept(value: Any, key: str, folder: FilePath, listed: bool) -> Any:
    try:
        path = tuple("*" if isinstance(part, int) else part for part in parse_path(key))
    except ValueError:
        return value
    if listed and isinstance(value, list):
        return [_anchored(item, path, folder) for item in value]
    return _anchored(value, path, folder)


def _anchored(value: Any, path: tuple[str, ...], folder: FilePath) -> Any:
    if isinstance(value, dict):
        return {key: _anchored(item, (*path, str(key)), folder) for key, item in value.items()}
    if isinstance(value, list):
        return [_anchored(item, (*path, "*"), folder) for item in value]
    if not isinstance(value, str) or value.startswith(("/", "~", "$", "-")) or "://" in value or not value:
        return value
    key = ".".join(path)
    whole = os.path.normpath(folder.absolute() / value)
    if key in _ALWAYS or (key in _IF_THERE and (value.startswith(("./", "../")) or os.path.lexists(whole))):
        # The folder is literal text, and references in `value` stay references.
        return os.path.normpath(f"{escape(str(folder.absolute()))}/{value}")
    return value
