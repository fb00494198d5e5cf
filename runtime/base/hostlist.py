"""Slurm's host list notation, `n[1-3,07],login`. Pure: scontrol is not in the container."""

from __future__ import annotations

from itertools import product
from typing import FrozenSet, List, Sequence, Tuple

MAX_HOSTS = 65536  # ours: a typo such as n[1-99999999] must not eat the memory of a node


class HostlistError(ValueError):
    """A host list that cannot be read; `column` counts from 1."""

    def __init__(self, text: str, column: int, reason: str) -> None:
        super().__init__(f"host list {text!r}, column {column}: {reason}")
        self.column = column


def expand(text: str) -> Tuple[str, ...]:
    """Host names in Slurm's order, one per node; `()` for empty text.

    Several brackets in one name multiply, the last one fastest. Leading zeros keep the width.
    Raises: HostlistError with the column.
    Source: scontrol(1), `show hostnames`; the vectors in tests/runtime are its output.
    """
    hosts: List[str] = []
    for start, part in _split(text):
        pieces = _pieces(text, start, part)
        count = 1
        for piece in pieces:
            count *= len(piece)
        if len(hosts) + count > MAX_HOSTS:
            raise HostlistError(text, start + 1, f"more than {MAX_HOSTS} hosts")
        hosts.extend("".join(names) for names in product(*pieces))
    return tuple(hosts)


def names(text: str) -> FrozenSet[str]:
    """The names of a host list; none of one that cannot be read: Slurm itself tells of it."""
    try:
        return frozenset(expand(text))
    except HostlistError:
        return frozenset()


def _split(text: str) -> List[Tuple[int, str]]:
    """The top-level parts and where they start; a comma within brackets does not split."""
    parts: List[Tuple[int, str]] = []
    depth, start = 0, 0
    for index, char in enumerate(text + ","):
        if char == "[":
            depth += 1
            if depth > 1:
                raise HostlistError(text, index + 1, "`[` within brackets")
        elif char == "]":
            depth -= 1
            if depth < 0:
                raise HostlistError(text, index + 1, "`]` without `[`")
        elif char == "," and (depth == 0 or index == len(text)):
            if depth:
                raise HostlistError(text, len(text), "`[` is not closed")
            part = text[start:index]
            if part.strip():
                parts.append((start + len(part) - len(part.lstrip()), part.strip()))
            start = index + 1
    return parts


def _pieces(text: str, start: int, part: str) -> List[Sequence[str]]:
    """A name as a list of alternatives: `a[1-2]b` is ["a"], ["1", "2"], ["b"]."""
    pieces: List[Sequence[str]] = []
    position = 0
    while position < len(part):
        opening = part.find("[", position)
        if opening < 0:
            pieces.append((part[position:],))
            break
        if opening > position:
            pieces.append((part[position:opening],))
        closing = part.index("]", opening)
        pieces.append(_numbers(text, start + opening + 1, part[opening + 1 : closing]))
        position = closing + 1
    return pieces


def _numbers(text: str, offset: int, body: str) -> List[str]:
    numbers: List[str] = []
    for item in body.split(","):
        first, dash, last = item.partition("-")
        last = last if dash else first
        if not (first.isascii() and first.isdecimal() and last.isascii() and last.isdecimal()):
            raise HostlistError(text, offset + 1, f"`{item}` is neither a number nor a range")
        low, high = int(first), int(last)
        if high < low:
            raise HostlistError(text, offset + 1, f"range `{item}` runs backwards")
        if high - low >= MAX_HOSTS:
            raise HostlistError(text, offset + 1, f"more than {MAX_HOSTS} hosts")
        numbers.extend(str(value).zfill(len(first)) for value in range(low, high + 1))
        offset += len(item) + 1
    return numbers
