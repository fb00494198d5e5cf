"""The settings that a SkyRL checkout accepts, read from the text of its configuration classes.

SkyRL refuses an unknown key, but only once the allocation is there. Its configuration is nested dataclasses:
their text has all names, and nothing is imported. A field of type `dict` takes any key below it.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

CONFIG = "skyrl/train/config/config.py"
ROOT_CLASS = "SkyRLTrainConfig"


@dataclass(frozen=True)
class Options:
    """Dotted keys that can be set, and the prefixes below which any key can be."""

    keys: frozenset[str] = frozenset()
    open: frozenset[str] = frozenset()
    groups: frozenset[str] = field(default=frozenset())

    def accepts(self, key: str) -> bool:
        parts = key.split(".")
        above = (".".join(parts[:count]) for count in range(1, len(parts)))
        return key in self.keys or key in self.open or any(prefix in self.open for prefix in above)


def read_options(checkout: Path) -> Options | None:
    """The options of a checkout; None when its configuration is not there or not readable as Python."""
    try:
        tree = ast.parse((checkout / CONFIG).read_text(encoding="utf-8"))
    except (OSError, SyntaxError, UnicodeDecodeError, ValueError):
        return None
    classes = {node.name: node for node in tree.body if isinstance(node, ast.ClassDef)}
    if ROOT_CLASS not in classes:
        return None
    kinds = list(_walk(classes, ROOT_CLASS, "", frozenset()))
    return Options(
        keys=frozenset(key for key, kind in kinds if kind == "leaf"),
        open=frozenset(key for key, kind in kinds if kind == "open"),
        groups=frozenset(key for key, kind in kinds if kind == "group"),
    )


def _walk(
    classes: Mapping[str, ast.ClassDef], name: str, prefix: str, above: frozenset[str]
) -> Iterator[tuple[str, str]]:
    """Keys below `prefix`, each with its kind: `leaf`, `open` or `group`."""
    for base in classes[name].bases:
        if isinstance(base, ast.Name) and base.id in classes and base.id not in above:
            yield from _walk(classes, base.id, prefix, above | {name})
    for node in classes[name].body:
        if not isinstance(node, ast.AnnAssign) or not isinstance(node.target, ast.Name):
            continue
        key = f"{prefix}{node.target.id}"
        names = {part.id for part in ast.walk(node.annotation) if isinstance(part, ast.Name)}
        inner = next((item for item in sorted(names) if item in classes and item not in above), None)
        if inner is not None:
            yield key, "group"
            yield from _walk(classes, inner, f"{key}.", above | {name})
        else:
            yield key, "open" if names & {"dict", "Dict", "Mapping"} else "leaf"
