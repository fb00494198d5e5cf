"""NeMo-RL's recipes as NeMo-RL composes them, from their text alone: no resolver runs.

Source: `nemo_rl/utils/config.py` at 7ea279ab. NeMo-RL merges its own `defaults:` (a name or a list, relative
to the file), where `_override_: true` replaces a section. Hydra overrides follow; a plain one adds no key.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any

import yaml

REFERENCE = re.compile(r"\$\{(\.*)([\w.]+)\}")
MEGATRON = "policy.megatron_cfg"
SIZES = {
    "tp": f"{MEGATRON}.tensor_model_parallel_size",
    "pp": f"{MEGATRON}.pipeline_model_parallel_size",
    "cp": f"{MEGATRON}.context_parallel_size",
    "ep": f"{MEGATRON}.expert_model_parallel_size",
    "etp": f"{MEGATRON}.expert_tensor_parallel_size",
}
ENGINE = {
    "tp": "policy.generation.vllm_cfg.tensor_parallel_size",
    "pp": "policy.generation.vllm_cfg.pipeline_parallel_size",
    "ep": "policy.generation.vllm_cfg.expert_parallel_size",
}
MAX_REFERENCES = 8  # in a chain of references; the recipes use two
# The loader in C reads a recipe of 300 lines in 5 ms, the one in Python in 50 ms.
LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)

Config = Mapping[str, Any]


def load(path: Path) -> Config:
    """A recipe with its `defaults` merged in.

    Raises: OSError, ValueError or yaml.YAMLError when one of the files cannot be read.
    """
    return _load(path, ())


def _load(path: Path, above: tuple[Path, ...]) -> dict[str, Any]:
    if path in above:
        raise ValueError(f"`{path}` inherits from itself")
    state = path.stat()
    parsed = _parse(path, state.st_mtime_ns, state.st_size)
    if not isinstance(parsed, dict):
        raise ValueError(f"`{path}` is no mapping")
    data = dict(parsed)
    parents = data.pop("defaults", [])
    if not isinstance(parents, str | list):
        raise ValueError(f"`defaults` of `{path}` is neither a name nor a list")
    base: dict[str, Any] = {}
    for parent in [parents] if isinstance(parents, str) else parents:
        file = (path.parent / str(parent)).resolve()
        base = _merge(base, _load(file, (*above, path)))
    return _merge(base, data)


@lru_cache(maxsize=512)
def _parse(path: Path, changed: int, size: int) -> Any:
    """A file as plain data that nobody changes; read again once it differs. Many recipes share a base."""
    return yaml.load(path.read_text("utf-8"), Loader=LOADER) or {}


def _merge(base: Mapping[str, Any], over: Mapping[str, Any]) -> dict[str, Any]:
    merged = dict(base)
    for key, value in over.items():
        old = merged.get(key)
        if not isinstance(value, Mapping):
            merged[key] = value
            continue
        fresh = {name: item for name, item in value.items() if name != "_override_"}
        keeps = isinstance(old, Mapping) and not value.get("_override_")
        merged[key] = _merge(old if keeps and isinstance(old, Mapping) else {}, fresh)
    return merged


def keys(config: Config, prefix: str = "") -> frozenset[str]:
    """All dotted keys, sections included."""
    dotted = set()
    for key, value in config.items():
        dotted.add(f"{prefix}{key}")
        if isinstance(value, Mapping):
            dotted |= keys(value, f"{prefix}{key}.")
    return frozenset(dotted)


def absent_keys(config: Config, overrides: Iterable[str]) -> tuple[str, ...]:
    """Keys of plain overrides that Hydra refuses: neither the recipe nor an earlier `+` has them."""
    known, absent = set(keys(config)), []
    for text in overrides:
        key = text.partition("=")[0].removeprefix("~")  # `~key` deletes a key, which must be there too
        bare = key.lstrip("+")
        if key == bare and bare not in known:
            absent.append(bare)
        parts = bare.split(".")
        known |= {".".join(parts[:end]) for end in range(1, len(parts) + 1)}
    return tuple(absent)


def apply(config: Config, overrides: Iterable[str]) -> Config:
    """The recipe with `key=value` set and `~key` deleted, values read as YAML.

    Raises: ValueError, yaml.YAMLError.
    """
    pairs = (text.partition("=") for text in overrides)
    return set_values(config, ((key, yaml.load(value, Loader=LOADER)) for key, _, value in pairs))


def set_values(config: Config, values: Iterable[tuple[str, Any]]) -> Config:
    """The recipe with dotted keys set, in their order and without a leading `+`."""
    changed: dict[str, Any] = _merge(config, {})
    for key, value in values:
        *parents, last = key.lstrip("+~").split(".")
        at = changed
        for parent in parents:
            inner = at.get(parent)
            at[parent] = dict(inner) if isinstance(inner, Mapping) else {}
            at = at[parent]
        if key.startswith("~"):
            at.pop(last, None)
        else:
            at[last] = value
    return changed


def get(config: Config, key: str, depth: int = MAX_REFERENCES) -> Any:
    """The value of a dotted key, with plain references followed; None for an absent or unknown value."""
    at: Any = config
    for part in key.split("."):
        if not isinstance(at, Mapping) or part not in at:
            return None
        at = at[part]
    if not isinstance(at, str) or "${" not in at:
        return at
    reference = REFERENCE.fullmatch(at.strip())
    if reference is None or depth == 0:
        return None
    dots, name = reference.groups()
    scope = key.split(".")[: -len(dots)] if dots else []
    return get(config, ".".join([*scope, name]), depth - 1)


def number(config: Config, key: str) -> int | None:
    """The whole number of a key; None where the recipe has none, or only a resolver knows it."""
    value = get(config, key)
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def value_text(value: object) -> str:
    if value is None:
        return "null"
    return str(value).lower() if isinstance(value, bool) else str(value)
