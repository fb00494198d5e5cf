"""Paths into a spec (`repos[0].path`, `train.overrides.'trainer.batch'`), positions and origins."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any, Literal

Path = tuple[str | int, ...]
Place = tuple[int, int]
# Path and "the key, not the value" -> `file`, `line` and `column` of a Finding.
Locate = Callable[[Path, bool], dict[str, Any]]

_PLAIN_KEY = re.compile(r"[^\s.\[\]'\"=]+\Z")
_PART = re.compile(r"""'((?:[^']|'')*)'|"([^"]*)"|\[(\d+)\]|([^.\[\]'"]+)""")


@lru_cache(maxsize=65536)
def format_path(path: Path) -> str:
    """The dotted text of a path; keys that hold a dot, quote or bracket are in single quotes."""
    text = ""
    for part in path:
        if isinstance(part, int):
            text += f"[{part}]"
            continue
        key = part if _PLAIN_KEY.match(part) and not part.isdecimal() else "'" + part.replace("'", "''") + "'"
        text += f".{key}" if text else key
    return text


def parse_path(text: str) -> Path:
    """The parts of a dotted path, inverse of `format_path`; an unquoted `.0` is an index like `[0]`.

    Raises: ValueError with the column when a part is empty or a quote or bracket is not closed.
    """
    parts: list[str | int] = []
    at = 0
    while at < len(text):
        if parts and text[at] == ".":
            at += 1
        elif parts and text[at] != "[":
            raise ValueError(f"`.` or `[` expected at column {at + 1}")
        match = _PART.match(text, at)
        if match is None or (match.group(3) and not parts):
            raise ValueError(f"a key or an index expected at column {at + 1}")
        single, double, index, plain = match.groups()
        if index is not None or (plain is not None and plain.isdecimal() and plain.isascii() and parts):
            parts.append(int(index or plain))
        else:
            parts.append(
                single.replace("''", "'") if single is not None else double if double is not None else plain
            )
        at = match.end()
    if not parts or text.endswith("."):
        raise ValueError(f"a key expected at column {len(text) + 1}")
    return tuple(parts)


def lookup(data: Any, path: Path) -> Any:
    """The value at `path`. Raises: KeyError when there is none."""
    for part in path:
        if isinstance(data, Mapping) and str(part) in data:
            data = data[str(part)]
        elif isinstance(data, list) and isinstance(part, int) and part < len(data):
            data = data[part]
        else:
            raise KeyError(format_path(path))
    return data


def find_path(data: Any, parts: Path) -> Path | None:
    """The real path of dotted `parts` in `data`, or None.

    A key of `train.overrides` may contain dots. So several parts are tried as one key when the first part
    alone is no key.
    """
    if not parts:
        return ()
    if isinstance(data, Mapping):
        for size in (1, *range(len(parts), 1, -1)):
            key = ".".join(map(str, parts[:size]))
            if key in data and (rest := find_path(data[key], parts[size:])) is not None:
                return (key, *rest)
    elif isinstance(data, list) and isinstance(parts[0], int) and parts[0] < len(data):
        rest = find_path(data[parts[0]], parts[1:])
        return None if rest is None else (parts[0], *rest)
    return None


def with_value(data: Any, path: Path, value: Any) -> Any:
    """A copy of `data` with `value` at `path`; only the containers on the way are copied."""
    if not path:
        return value
    part, rest = path[0], path[1:]
    if isinstance(part, int):
        items = list(data) if isinstance(data, list) else []
        items[part : part + 1] = [with_value(items[part] if part < len(items) else None, rest, value)]
        return items
    mapping = dict(data) if isinstance(data, Mapping) else {}
    mapping[part] = with_value(mapping.get(part), rest, value)
    return mapping


def without(data: Any, path: Path) -> Any:
    """A copy of `data` without the mapping entry or list item at `path`; unchanged if there is none."""
    part, rest = path[0], path[1:]
    if isinstance(data, list) and isinstance(part, int) and part < len(data):
        return [*data[:part], *([without(data[part], rest)] if rest else []), *data[part + 1 :]]
    if isinstance(data, Mapping) and part in data:
        if not rest:
            return {key: value for key, value in data.items() if key != part}
        return {**data, str(part): without(data[str(part)], rest)}
    return data


def leaves(data: Any, path: Path = ()) -> Iterator[tuple[Path, Any]]:
    """Every scalar, empty list and empty mapping of `data` with its path."""
    if isinstance(data, Mapping) and data:
        for key, value in data.items():
            yield from leaves(value, (*path, key))
    elif isinstance(data, list) and data:
        for index, value in enumerate(data):
            yield from leaves(value, (*path, index))
    else:
        yield path, data


@dataclass(frozen=True)
class Positions:
    """Where keys and values stand in the text; lines and columns count from 1.

    Of a spec with bases, `files` has the file of each value that is not of `file`.
    """

    file: str = ""
    values: Mapping[Path, Place] = field(default_factory=dict)
    keys: Mapping[Path, Place] = field(default_factory=dict)
    files: Mapping[Path, str] = field(default_factory=dict)

    def at(self, path: str | Path, key: bool = False) -> Place:
        """The position of the value (or key) at `path`, else of its nearest known ancestor, else (1, 1)."""
        return self._nearest(_parts(path) if isinstance(path, str) else path, key)[1]

    def _nearest(self, parts: Path, key: bool) -> tuple[Path, Place]:
        table = self.keys if key else self.values
        for size in range(len(parts), 0, -1):
            known = [parts[:size]]
            if size < len(parts):
                # `train.overrides.trainer.batch`: the rest may be one key with dots.
                known.insert(0, (*parts[:size], ".".join(map(str, parts[size:]))))
            for path in known:
                if (place := table.get(path) or self.values.get(path)) is not None:
                    return path, place
        return (), self.values.get((), (1, 1))

    def place(self, path: str | Path, key: bool = False) -> dict[str, Any]:
        """The position as a Finding's keywords."""
        found, (line, column) = self._nearest(_parts(path) if isinstance(path, str) else path, key)
        return {"file": self.files.get(found, self.file), "line": line, "column": column}

    def below(self, prefix: Path) -> Positions:
        """The positions of a part, as if it were the whole."""
        size = len(prefix)
        tables: list[dict[Path, Any]] = [
            {path[size:]: item for path, item in table.items() if path[:size] == prefix}
            for table in (self.values, self.keys, self.files)
        ]
        return Positions(self.file, *tables)

    def under(self, over: Positions) -> Positions:
        """The same positions, as those below another file's: the whole is the upper file's."""
        if over.file == self.file:
            return self
        files = {path: self.files.get(path, self.file) for path in self.values if path}
        values = {**self.values, (): over.values.get((), (1, 1))}
        return Positions(over.file, values, self.keys, files)

    def replaced(self, path: Path, by: Positions | None, of: Path) -> Positions:
        """These positions, and at `path` and below those that `by` has at `of`; without `by` none there.

        Mappings on the way that are new have the place of their own in `by`.
        """
        tables: list[dict[Path, Any]] = [
            {known: item for known, item in table.items() if known[: len(path)] != path}
            for table in (self.values, self.keys, self.files)
        ]
        if by is not None:
            values, keys, files = tables
            ways = [of[:size] for size in range(1, len(of)) if of[:size] == path[:size]]
            below = [known for known in by.values if known[: len(of)] == of]
            for known in (*(way for way in ways if way not in values), *below):
                real = (*path, *known[len(of) :]) if known[: len(of)] == of else known
                values[real] = by.values.get(known, (1, 1))
                files[real] = by.files.get(known, by.file)
                if known in by.keys:
                    keys[real] = by.keys[known]
        return replace(self, values=tables[0], keys=tables[1], files=tables[2])


def _parts(text: str) -> Path:
    try:
        return parse_path(text)
    except ValueError:
        return (text,)


OriginKind = Literal["spec", "set", "env", "default", "cluster", "framework", "level", "nodes"]


@dataclass(frozen=True)
class Origin:
    """Where a value came from: `where` is `file:line`, `--set KEY=VALUE`, a variable or a profile."""

    kind: OriginKind
    where: str = ""
