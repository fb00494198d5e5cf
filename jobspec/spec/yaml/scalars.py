"""What a plain (unquoted) YAML scalar means: YAML 1.2's core schema, and what older readers make of it."""

from __future__ import annotations

import math
import re
from typing import Any

NULLS = frozenset({"", "~", "null", "Null", "NULL"})
BOOLEANS = {"true": True, "True": True, "TRUE": True, "false": False, "False": False, "FALSE": False}
# YAML 1.1 booleans that are text in 1.2; PyYAML and many editors still read them as booleans.
BOOLEAN_WORDS = {
    **dict.fromkeys(("yes", "Yes", "YES", "on", "On", "ON", "y", "Y"), True),
    **dict.fromkeys(("no", "No", "NO", "off", "Off", "OFF", "n", "N"), False),
}
# One letter is as often a name as a mistake, and PyYAML too leaves it text.
AMBIGUOUS_WORDS = frozenset(BOOLEAN_WORDS) - {"y", "Y", "n", "N"}

INT_LIMIT = 2**63
_INTEGER = re.compile(r"[-+]?[0-9]+\Z", re.ASCII)
_HEX = re.compile(r"0x[0-9a-fA-F]+\Z")
_OCTAL = re.compile(r"0o[0-7]+\Z")
_OCTAL_LOOKING = re.compile(r"[-+]?0[0-9_]+\Z", re.ASCII)
_FLOAT = re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?\Z", re.ASCII)
_NOT_FINITE = re.compile(r"[-+]?\.(inf|Inf|INF)\Z|\.(nan|NaN|NAN)\Z")
_BINARY = re.compile(r"[-+]?0b[01_]*[01][01_]*\Z")
_NUMBER_1_1 = re.compile(
    r"[-+]?[1-9][0-9_]*\Z|[-+]?[0-9][0-9_]*\.[0-9_]*([eE][-+][0-9]+)?\Z|\.[0-9][0-9_]*([eE][-+][0-9]+)?\Z"
    r"|[-+]?0x[0-9a-fA-F_]*[0-9a-fA-F][0-9a-fA-F_]*\Z",
    re.ASCII,
)
_BASE_60 = re.compile(
    r"[-+]?[1-9][0-9_]*(:[0-5]?[0-9])+\Z|[-+]?[0-9][0-9_]*(:[0-5]?[0-9])+\.[0-9_]*\Z", re.ASCII
)


class ScalarError(ValueError):
    """A plain scalar that is refused: `why` it is, and a `fix`."""

    def __init__(self, what: str, why: str, fix: str) -> None:
        super().__init__(what)
        self.what, self.why, self.fix = what, why, fix


def resolve(source: str) -> Any:
    """None, bool, int, float or the text itself. Raises: ScalarError: octal-looking, out of range."""
    if source in NULLS:
        return None
    if source in BOOLEANS:
        return BOOLEANS[source]
    first = source[0]
    if not (first.isdecimal() or first in "+-."):
        return source
    if _OCTAL_LOOKING.match(source):
        plain = source.replace("_", "").lstrip("+-").lstrip("0") or "0"
        why = "YAML 1.1 reads a leading 0 as octal, YAML 1.2 does not"
        raise ScalarError(f"`{source}` looks octal", why, f"write `{plain}`, or quote it if it is text")
    if _INTEGER.match(source) or _HEX.match(source) or _OCTAL.match(source):
        return _integer(source)
    if _NOT_FINITE.match(source):
        raise ScalarError(
            f"`{source}` is not a finite number",
            "JSON cannot hold it",
            "leave the key out, or quote it if it is text",
        )
    if _FLOAT.match(source):
        value = float(source)
        if math.isinf(value):
            raise ScalarError(f"`{source}` is out of range", "a number has 64 bits", "write a smaller number")
        return value
    return source


def _integer(source: str) -> int:
    # Python's `int` refuses more than 4300 digits, and far fewer already exceed 64 bits.
    base = 0 if source[:2] in ("0x", "0o") else 10
    value = int(source, base) if len(source) <= 70 else INT_LIMIT
    if not -INT_LIMIT <= value < INT_LIMIT:
        raise ScalarError(
            f"`{source[:30]}` is out of range", "a whole number has 64 bits", "quote it if it is text"
        )
    return value


def older_reading(source: str) -> str:
    """How a YAML 1.1 reader such as PyYAML reads text that is text here; empty when it agrees.

    Source: PyYAML 6.0 `resolver.py` implicit resolvers, run in tests/spec/yaml/test_scalars.py.
    """
    if source in AMBIGUOUS_WORDS:
        return f"the boolean {str(BOOLEAN_WORDS[source]).lower()}"
    bare = source.replace("_", "")
    if _BASE_60.match(source):
        total = 0.0
        for part in bare.lstrip("+-").split(":"):
            total = total * 60 + float(part)
        return f"the base-60 number {total:g}" if total % 1 else f"the base-60 number {int(total)}"
    if _BINARY.match(source):
        return f"the number {int(bare, 2)}"
    if _NUMBER_1_1.match(source):
        return f"the number {bare}"
    return ""
