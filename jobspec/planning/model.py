"""The architecture of the model that a spec names: from its config.json, or the shipped table.

Looks at a few files of a Hugging Face cache or a folder, changes nothing.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from jobspec.finding import Finding, warning
from jobspec.megatron.architecture import Architecture, find_architecture, parse_config
from jobspec.planning.repos import files_of, stage_plan_of_model

if TYPE_CHECKING:
    from jobspec.plan import StagePlan
    from jobspec.spec.job import Model


def read_architecture(
    model: Model | None, base: Path, hf_home: str, named: str = ""
) -> tuple[Architecture | None, list[Finding]]:
    """The model's sizes, or None with a warning that says what is not checked without them.

    The spec's own `model.config` wins, then the config.json of the staged or cached model, then the table;
    `named` is what an adapter says is trained where the spec does not.
    """
    if model is None:
        return (find_architecture(named) if named else None), []
    name = model.id or model.path or named
    if model.config:
        return _parsed(model.config, name, "`model.config` of the spec", "model.config")
    plan = stage_plan_of_model(model, base, hf_home)
    file = None if plan is None else _config_file(plan)
    if file is not None:
        return _read(file, name)
    known = find_architecture(name) or (find_architecture(named) if named else None)
    if known is not None:
        return known, []
    return None, [
        _unknown(name, "neither a config.json nor an entry of the shipped table was found", "model")
    ]


def _config_file(plan: StagePlan) -> Path | None:
    """The model's config.json as it lies on shared storage, None when it is not there."""
    file = files_of(plan) / "config.json"
    return file if os.path.isfile(file) else None  # noqa: PTH113 - never raises


def _read(file: Path, name: str) -> tuple[Architecture | None, list[Finding]]:
    try:
        config = json.loads(file.read_text("utf-8"))
    except (OSError, ValueError) as problem:
        return None, [_unknown(name, f"`{file}` cannot be read: {problem}", "model")]
    if not isinstance(config, dict):
        return None, [_unknown(name, f"`{file}` holds no mapping", "model")]
    return _parsed(config, name, str(file), "model")


def _parsed(
    config: Mapping[str, Any], name: str, source: str, path: str
) -> tuple[Architecture | None, list[Finding]]:
    try:
        return parse_config(config, name, source), []
    except KeyError as missing:
        return None, [_unknown(name, f"{source} has no {missing.args[0]!r}", path)]
    except (AttributeError, IndexError, TypeError, ValueError) as problem:
        return None, [_unknown(name, f"{source} has a size that is none: {problem}", path)]


def _unknown(name: str, why: str, path: str) -> Finding:
    return warning(
        "megatron.model-unknown",
        f"the sizes of `{name}` are not known: layers, heads, experts and memory are not checked",
        why=why,
        fix="stage the model first, or give its config.json's sizes in `model.config`",
        path=path,
    )
