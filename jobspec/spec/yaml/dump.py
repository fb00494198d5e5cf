"""Plain data -> YAML text that every YAML reader, 1.1 or 1.2, reads back as the same data."""

from __future__ import annotations

import functools
import json
import math
import re
from collections.abc import Mapping
from typing import Any

import yaml
from yaml.nodes import Node, ScalarNode

from jobspec.finding import fail
from jobspec.spec.yaml import scalars

# Texts that no reader takes for anything but text; all others are quoted.
_PLAIN = re.compile(r"[A-Za-z_/][A-Za-z0-9_./@+-]*\Z", re.ASCII)
_RESERVED = scalars.NULLS | scalars.BOOLEANS.keys() | scalars.BOOLEAN_WORDS.keys()
# Lines that a literal block keeps byte for byte: printable ASCII, no tab, no space at either end of the text.
_BLOCK = re.compile(r"[!-~](?:[ -~]*[!-~])?(?:\n(?:[ -~]*[!-~])?)*\n?\Z", re.ASCII)

_LINE = re.compile(r"^(?=.)", re.MULTILINE)  # where a line begins that is not empty


class _Dumper(yaml.SafeDumper):
    def ignore_aliases(self, data: Any) -> bool:
        return True

    def increase_indent(self, flow: bool = False, indentless: bool = False) -> None:
        super().increase_indent(flow, False)


def _is_plain(text: str) -> bool:
    return bool(_PLAIN.match(text)) and text not in _RESERVED


def _text(dumper: _Dumper, text: str) -> Node:
    plain = _is_plain(text)
    block = "\n" in text.rstrip("\n") and _BLOCK.match(text)
    return ScalarNode("tag:yaml.org,2002:str", text, style=None if plain else "|" if block else '"')


def _number(dumper: _Dumper, value: float) -> Node:
    text = repr(value)
    if "e" in text and "." not in text:  # YAML 1.1 readers want the dot: 1e-06 is text to them
        text = text.replace("e", ".0e")
    return ScalarNode("tag:yaml.org,2002:float", text)


_Dumper.add_representer(str, _text)
_Dumper.add_representer(float, _number)


def dump_spec(data: Mapping[str, Any]) -> str:
    """YAML text of plain data, keys in their order. `jobspec.spec.load` reads the same data back.

    Raises: JobspecError when a value has no YAML form that reads back: NaN, infinity, NUL, a lone surrogate.
    """
    _refuse(data, "")
    return _mapping(data) if data else "{}\n"


def _mapping(data: Mapping[str, Any]) -> str:
    return "".join(_entry(key, json.dumps(value)) for key, value in data.items())


@functools.lru_cache(maxsize=4096)
def _entry(key: str, value: str) -> str:
    """One key of a mapping. Remembered on every level: the points of a sweep differ in one or two values."""
    data = json.loads(value)
    if isinstance(data, dict) and data and _is_plain(key):
        return f"{key}:\n" + _LINE.sub("  ", _mapping(data))
    if type(data) is int and _is_plain(key):
        return f"{key}: {data}\n"
    return yaml.dump(
        {key: data},
        Dumper=_Dumper,
        sort_keys=False,
        allow_unicode=True,
        width=2**20,
        default_flow_style=False,
    )


def _refuse(data: Any, path: str) -> None:
    if isinstance(data, Mapping):
        for key, value in data.items():
            if not isinstance(key, str):
                raise fail("spec.dump", f"the key `{key}` is not text", path=path)
            _refuse(key, path)
            _refuse(value, f"{path}.{key}".lstrip("."))
    elif isinstance(data, list | tuple):
        for index, value in enumerate(data):
            _refuse(value, f"{path}[{index}]")
    elif isinstance(data, str):
        if "\0" in data or any("\ud800" <= char <= "\udfff" for char in data):
            raise fail("spec.dump", "the text holds a NUL character or a lone surrogate", path=path)
    elif isinstance(data, float) and not math.isfinite(data):
        raise fail("spec.dump", f"`{data}` has no place in a spec", fix="leave the key out", path=path)
    elif not isinstance(data, int | float | None):
        raise fail("spec.dump", f"a `{type(data).__name__}` has no YAML form here", path=path)
