"""The generated part of docs/spec.md and docs/sites.md; `python -m jobspec.reference.spec_keys` renews it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from jobspec.reference.marks import renew, with_part
from jobspec.spec.fields import (
    DURATION_PATTERN,
    ENV_NAME_PATTERN,
    NAME_PATTERN,
    PATIENCE_PATTERN,
    SERVICE_NAME_PATTERN,
    SIZE_PATTERN,
    SPAN_PATTERN,
    WORD_PATTERN,
)
from jobspec.spec.paths import format_path
from jobspec.spec.schema import Kind, Shape, root_shape

MAKER = "jobspec.reference.spec_keys"
PAGES: dict[Kind, str] = {"job": "docs/spec.md", "cluster": "docs/sites.md"}

_TYPE_OF_PATTERN = {
    NAME_PATTERN: "name",
    SERVICE_NAME_PATTERN: "name as in DNS",
    ENV_NAME_PATTERN: "variable name",
    SIZE_PATTERN: "size",
    SPAN_PATTERN: "number of `s`, `m` or `h`",
    PATIENCE_PATTERN: "`auto`, or a number of `s`, `m` or `h`",
    DURATION_PATTERN: "time",
    WORD_PATTERN: "word",
}
_TYPES = {
    "string": "text",
    "integer": "whole number",
    "number": "number",
    "boolean": "true or false",
    "array": "list",
    "object": "mapping",
}


def reference(kind: Kind) -> str:
    """Markdown: a table of the top-level keys, then one section for each key with keys below it."""
    root = root_shape(kind)
    sections = [_table(root, ())]
    for key, shape in (root.properties or {}).items():
        sections += list(_sections(shape, (key,)))
    return "\n\n".join(sections) + "\n"


def _sections(shape: Shape, path: tuple[str | int, ...]) -> Iterator[str]:
    inner, where = (shape.items, f"{format_path(path)}[]") if shape.items else (shape, format_path(path))
    if not inner.properties:
        return
    title = where.replace("[0]", "[]")
    yield f"### `{title}`\n\n{_escape(str(inner.node.get('description', '')))}\n\n{_table(inner, path)}"
    step: tuple[int, ...] = (0,) if shape.items else ()
    for key, child in inner.properties.items():
        yield from _sections(child, (*path, *step, key))


def _table(shape: Shape, path: tuple[str | int, ...]) -> str:
    rows = ["| Key | Type | Default | Meaning |", "|---|---|---|---|"]
    for key, child in (shape.properties or {}).items():
        if child.node.get("description", "").startswith("Written by jobspec"):
            default = ""
        else:
            default = "**required**" if key in shape.required else _default(child.default)
        meaning = _escape(child.description) + _examples(child)
        rows.append(f"| `{key}` | {_type(child)} | {default} | {meaning} |")
    return "\n".join(rows)


def _type(shape: Shape) -> str:
    if "enum" in _plain(shape):
        return " \\| ".join(f"`{_word(value)}`" for value in _plain(shape)["enum"])
    node = _plain(shape)
    if "pattern" in node:
        return _TYPE_OF_PATTERN[str(node["pattern"])]
    if shape.items and not shape.items.properties:
        one = "text or " if "string" in shape.types else ""
        return one + (f"list of {_type(shape.items)}" if shape.items.types else "list")
    if shape.items:
        return "list of mappings"
    if shape.values and shape.values.types:
        return f"mapping to {_type(shape.values)}"
    words = [_TYPES[name] for name in sorted(shape.types - {"null"}, reverse=True)]
    low, high = node.get("minimum"), node.get("maximum")
    bounds = f", {low} to {high}" if high is not None else f", at least {low}" if low is not None else ""
    return (" or ".join(words) or "anything") + bounds


def _plain(shape: Shape) -> dict[str, Any]:
    """The schema node of a value that may also be null: its other branch."""
    branches = [b for b in shape.node.get("anyOf", ()) if b.get("type") != "null"]
    return {**shape.node, **(branches[0] if len(branches) == 1 else {})}


def _default(value: Any) -> str:
    return "" if value in (None, {}, [], "") else f"`{_word(value)}`"


def _examples(shape: Shape) -> str:
    shown = [_word(value) for value in shape.node.get("examples", ())]
    return f" Example: {', '.join(f'`{text}`' for text in shown)}" if shown else ""


def _word(value: Any) -> str:
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return text.replace("|", "\\|")


def _escape(text: str) -> str:
    # `<NAME>` outside of backticks would vanish as an HTML tag.
    return text.replace("|", "\\|").replace("<", "&lt;")


def with_reference(page: str, kind: Kind) -> str:
    """The page with its generated part renewed. Raises: ValueError when the marks are not there."""
    return with_part(page, MAKER, reference(kind))


def main(root: Path) -> None:
    """Rewrite both pages below `root`."""
    for kind, name in PAGES.items():
        renew(root / name, MAKER, reference(kind))


if __name__ == "__main__":
    main(Path.cwd())
