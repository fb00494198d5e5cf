"""YAML nodes -> plain data (dict, list, str, int, float, bool, None) with positions, guided by the schema.

Where the schema wants text, a plain scalar stays the text that the user wrote: `ref: 0012345` is a commit
and `time: 4:00:00` is a time. Every trap becomes a Finding, and building goes on after an error.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

from yaml.nodes import MappingNode, Node, ScalarNode, SequenceNode

from jobspec.finding import Finding, error, warning
from jobspec.spec.paths import Path, Place, format_path
from jobspec.spec.schema import ANY, Shape
from jobspec.spec.yaml import scalars
from jobspec.spec.yaml.nodes import MAPPING, PLAIN, SEQUENCE, TEXT

MAX_NODES = 100_000  # ours; far above any spec, far below what an alias bomb expands to


Pair = tuple[Node, Node, Node | None]


class _TooManyNodesError(Exception):
    pass


@dataclass
class Builder:
    """Collects findings and positions while it turns one document into data."""

    file: str
    findings: list[Finding] = field(default_factory=list)
    values: dict[Path, Place] = field(default_factory=dict)
    keys: dict[Path, Place] = field(default_factory=dict)
    _count: int = 0
    _open: set[int] = field(default_factory=set)
    _seen: set[int] = field(default_factory=set)

    def build(self, node: Node, shape: Shape = ANY, path: Path = ()) -> Any:
        """The data of a document; None and a finding when it has too many values, by itself or by aliases."""
        try:
            return self._value(node, shape, path)
        except _TooManyNodesError:
            if len(self._seen) < MAX_NODES // 2:  # most of them are repeated
                self._add(
                    error, "spec.alias", f"aliases expand to more than {MAX_NODES} values", node, path,
                    "anchors that refer to anchors multiply", "write the values out",
                )  # fmt: skip
            else:
                self._add(
                    error, "spec.size", f"the file has more than {MAX_NODES} values", node, path,
                    "a spec holds settings, not data", "put data into a file that the spec names",
                )  # fmt: skip
            return None

    def _value(self, node: Node, shape: Shape, path: Path) -> Any:
        self._count += 1
        if self._count > MAX_NODES:
            raise _TooManyNodesError
        self._seen.add(id(node))
        self.values[path] = _place(node)
        if isinstance(node, ScalarNode):
            return self._scalar(node, shape, path)
        if id(node) in self._open:
            self._add(
                error,
                "spec.alias",
                "this alias refers to a value that contains it",
                node,
                path,
                fix="write the value out",
            )
            return None
        if node.tag not in (MAPPING, SEQUENCE):
            self._unknown_tag(node, path)
        self._open.add(id(node))
        try:
            if isinstance(node, MappingNode):
                return self._mapping(node, shape, path)
            return [self._value(item, shape.child(i) or ANY, (*path, i)) for i, item in enumerate(node.value)]
        finally:
            self._open.discard(id(node))

    # -- mappings

    def _mapping(self, node: MappingNode, shape: Shape, path: Path) -> dict[str, Any]:
        result: dict[str, Any] = {}
        for key_node, value_node, merged_by in self._pairs(node, path):
            key = self._key(key_node, path)
            if key is None:
                continue
            here = (*path, key)
            if key not in result:
                self.keys[here] = _place(key_node)
                result[key] = self._value(value_node, shape.child(key) or ANY, here)
            elif merged_by is None:
                self._add(
                    error, "spec.duplicate-key", f"`{key}` is given twice", key_node, here,
                    f"it is already given in line {self.keys[here][0]}", "remove one of the two",
                )  # fmt: skip
            else:
                self._add(
                    error, "spec.merge", f"`<<` merges `{key}`, which is already given", merged_by, here,
                    "YAML readers disagree about which one wins", f"remove `{key}` here or in the anchor",
                )  # fmt: skip
        return result

    def _pairs(self, node: MappingNode, path: Path, merged_by: Node | None = None) -> Iterator[Pair]:
        """The node's own pairs, then the pairs that `<<` merges, each with its `<<`."""
        merges = []
        for key, value in node.value:
            if isinstance(key, ScalarNode) and key.tag == PLAIN and key.value == "<<":
                merges.append((key, value))
            else:
                yield key, value, merged_by
        for key, value in merges:
            for source in value.value if isinstance(value, SequenceNode) else [value]:
                self._count += 1
                if self._count > MAX_NODES:
                    raise _TooManyNodesError
                if not isinstance(source, MappingNode):
                    self._add(
                        error,
                        "spec.merge",
                        "`<<` needs a mapping",
                        value,
                        path,
                        fix="refer to an anchor of a mapping",
                    )
                elif source is node:
                    self._add(
                        error,
                        "spec.alias",
                        "`<<` merges a mapping into itself",
                        key,
                        path,
                        fix="write the keys out",
                    )
                else:
                    yield from self._pairs(source, path, merged_by or key)

    def _key(self, node: Node, path: Path) -> str | None:
        if not isinstance(node, ScalarNode):
            self._add(
                error, "spec.key", "a key cannot be a list or a mapping", node, path, fix="write `key: value`"
            )
            return None
        if node.tag not in (PLAIN, TEXT):
            self._unknown_tag(node, path)
        if node.tag == PLAIN and node.value in scalars.NULLS:
            self._add(
                error,
                "spec.key",
                "a key is missing before `:`",
                node,
                path,
                fix='write a key, or `"null"` for that name',
            )
            return None
        self._check_text(node.value, node, path)
        return str(node.value)

    # -- scalars

    def _scalar(self, node: ScalarNode, shape: Shape, path: Path) -> Any:
        source: str = node.value
        if node.tag not in (PLAIN, TEXT):
            self._unknown_tag(node, path)
            return source
        self._check_text(source, node, path)
        if node.tag == TEXT:
            return source
        return self._text(node, shape, path) if shape.is_text else self._typed(node, shape, path)

    def _text(self, node: ScalarNode, shape: Shape, path: Path) -> Any:
        """The source of a plain scalar where text is wanted, with a warning if other tools read a number."""
        source: str = node.value
        if source in scalars.NULLS and "null" in shape.types:
            return None
        if source in scalars.NULLS or source in scalars.BOOLEANS:
            kind = "null" if source in scalars.NULLS else "a boolean"
            written = '`""` for empty text' if kind == "null" else f'`"{source}"`, `"1"` or `"0"`'
            what = f"{f'`{source}`' if source else 'nothing'} is {kind}, and text is wanted"
            self._add(
                error,
                "spec.not-text",
                what,
                node,
                path,
                "jobspec does not guess how to spell it",
                f"write {written}",
            )
            return "" if kind == "null" else source
        reading = scalars.older_reading(source) or _number_reading(source)
        if reading and "enum" not in shape.node:
            why = f"without quotes, other YAML tools read {reading}"
            self._warn_of_text(node, path, why, f'write `"{source}"`')
        return source

    def _typed(self, node: ScalarNode, shape: Shape, path: Path) -> Any:
        source: str = node.value
        try:
            value = scalars.resolve(source)
        except scalars.ScalarError as problem:
            self._add(error, "spec.number", problem.what, node, path, problem.why, problem.fix)
            return 0 if shape.types & {"integer", "number"} else source
        if (
            isinstance(value, float)
            and value.is_integer()
            and "integer" in shape.types
            and "number" not in shape.types
        ):
            return int(value)
        reading = scalars.older_reading(source) if isinstance(value, str) else ""
        if reading and (not shape.types or "string" in shape.types):
            why = f"other YAML tools read {reading}"
            self._warn_of_text(node, path, why, f'write `"{source}"` or what is meant')
        return value

    # -- findings

    def _warn_of_text(self, node: ScalarNode, path: Path, why: str, fix: str) -> None:
        self._add(warning, "spec.unquoted", f"`{node.value}` is taken as text", node, path, why, fix)

    def _check_text(self, text: str, node: Node, path: Path) -> None:
        if "\0" in text:
            why = "neither a file name, an argument nor an environment variable can hold it"
            self._add(
                error, "spec.characters", "the text holds a NUL character", node, path, why, "remove it"
            )

    def _unknown_tag(self, node: Node, path: Path) -> None:
        tag = str(node.tag).replace("tag:yaml.org,2002:", "!!")
        self._add(
            error, "spec.tag", f"the tag `{tag}` is not supported", node, path,
            "types come from the schema", "remove the tag, and quote the value if it is text",
        )  # fmt: skip

    def _add(
        self,
        make: Callable[..., Finding],
        rule: str,
        what: str,
        node: Node,
        path: Path,
        why: str = "",
        fix: str = "",
    ) -> None:
        line, column = _place(node)
        where = {"path": format_path(path), "file": self.file, "line": line, "column": column}
        self.findings.append(make(rule, what, why, fix, **where))


def _number_reading(source: str) -> str:
    try:
        value = scalars.resolve(source)
    except scalars.ScalarError:
        return "a number"
    return "" if isinstance(value, str) else f"the number {value}"


def _place(node: Node) -> Place:
    return node.start_mark.line + 1, node.start_mark.column + 1
