"""What a NeMo-RL checkout has: reads scripts and recipes, runs nothing."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from glob import glob
from pathlib import Path
from typing import Any

import yaml

from jobspec.finding import Finding, error, warning
from jobspec.frameworks.nemo_rl.levels import Variant

BRIDGE = "3rdparty/Megatron-Bridge-workspace/Megatron-Bridge"
FORWARDS = re.compile(r"\$@|\$\{@\}|\$\*")


def find_checkout(paths: Mapping[str, str]) -> str:
    """The only repository with the package `nemo_rl`; empty when none or several have it."""
    found = [path for path in paths.values() if Path(path, "nemo_rl").is_dir()]
    return found[0] if len(found) == 1 else ""


def find_bridge(paths: Mapping[str, str]) -> str:
    """The repository with Megatron-Bridge's package; empty when none has it."""
    return next((path for path in paths.values() if Path(path, "src/megatron/bridge").is_dir()), "")


def probe(root: str, variant: Variant, overrides: Iterable[str]) -> Iterator[Finding]:
    """What the checkout lacks for `variant`; nothing else is ever run in its place."""
    script = Path(root, variant.script)
    path = "coverage.variants"
    if not script.is_file():
        what = f"the checkout has no `{variant.script}`, which variant `{variant.name}` runs"
        yield error("nemo_rl.script", what, f"looked in `{root}`", "use a revision that has it", path=path)
        return
    if not FORWARDS.search(script.read_text("utf-8", errors="replace")):
        what = f"`{variant.script}` does not pass its arguments on, so overrides would be ignored"
        yield error("nemo_rl.script", what, fix="use a revision whose script ends with `$@`", path=path)
    found = (name for name in variant.leftovers if glob(str(Path(root, name))))
    for leftover in found:
        yield error(
            "nemo_rl.leftover",
            f"`{leftover}` exists: the baseline run would resume from it",
            "NeMo-RL always resumes from the newest `step_N` of its default folder",
            "move the folder away",
            path=path,
        )
    if not any(Path(root, BRIDGE).glob("*")):
        what = f"submodule `{BRIDGE}` is empty"
        why = "`uv` resolves path sources in it unless the image's environments are used as they are"
        yield warning("nemo_rl.submodules", what, why, "`git submodule update --init --recursive`")
    yield from _check_keys(root, variant, overrides)


def _check_keys(root: str, variant: Variant, overrides: Iterable[str]) -> Iterator[Finding]:
    if not variant.config:
        return
    try:
        keys = config_keys(Path(root, variant.config))
    except (OSError, ValueError, yaml.YAMLError) as why:
        what = f"`{variant.config}` of the checkout cannot be read"
        yield error("nemo_rl.config", what, str(why), "use a complete checkout", path="repos")
        return
    for text in overrides:
        key = text.partition("=")[0]
        if not key.startswith("+") and key not in keys:
            yield error(
                "nemo_rl.key",
                f"`{variant.config}` has no key `{key}`",
                "Hydra refuses a plain override of an absent key",
                "correct the key, or use a revision that has it",
                path="train.overrides",
            )


def config_keys(path: Path) -> frozenset[str]:
    """Dotted keys of a recipe with its `defaults` merged in.

    Raises: OSError, ValueError or yaml.YAMLError when one of the files cannot be read.
    """
    return _keys(path, ())


def _keys(path: Path, above: tuple[Path, ...]) -> frozenset[str]:
    if path in above:
        raise ValueError(f"`{path}` inherits from itself")
    data = yaml.safe_load(path.read_text("utf-8")) or {}
    if not isinstance(data, dict):
        raise ValueError(f"`{path}` is no mapping")
    parents = data.pop("defaults", [])
    parents = [parents] if isinstance(parents, str) else parents
    found = set(_dotted(data))
    for parent in parents:
        found |= _keys(path.parent / str(parent), (*above, path))
    return frozenset(found)


def _dotted(data: Mapping[str, Any], prefix: str = "") -> Iterator[str]:
    for key, value in data.items():
        yield f"{prefix}{key}"
        if isinstance(value, Mapping):
            yield from _dotted(value, f"{prefix}{key}.")
