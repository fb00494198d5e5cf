"""The traceback that ends at an exception line: which code it went through, and whether it matters."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from jobspec.log_text import RAY_PREFIX, bare, strip_ansi

MAX_LINES = 160  # lines looked back: a deep traceback of a trainer has about 100
_FRAME = re.compile(r'^\s*File "([^"]+)", line \d+, in (\S+)')
_HEAD = re.compile(r"Traceback \(most recent call last\)|^\s*ray::[\w.]+\(")
# Source: CPython 3.9 to 3.13 prints this before a traceback that it goes on after.
_IGNORED = re.compile(r"^\s*Exception ignored (?:in|on|while)\b")


@dataclass(frozen=True)
class Traceback:
    """Its frames as `file:function`, outermost first; `ignored` when Python went on after it."""

    frames: tuple[str, ...] = ()
    ignored: bool = False


def traceback_above(lines: Sequence[bytes], offset: int) -> Traceback:
    """The traceback whose exception stands at `lines[offset]`; an empty one where there is none.

    Lines of other workers that got in between are passed over: Ray's prefix tells whose a line is.
    """
    owner = _owner(_text(lines[offset]))
    frames: list[str] = []
    for at in range(offset - 1, max(-1, offset - MAX_LINES), -1):
        raw = _text(lines[at])
        if _owner(raw) != owner:
            continue
        text = bare(raw)
        frame = _FRAME.match(text)
        if frame is not None:
            frames.append(f"{frame[1]}:{frame[2]}")
        elif _HEAD.search(text):
            above = bare(_text(lines[at - 1])) if at else ""
            return Traceback(tuple(reversed(frames)), _IGNORED.match(above) is not None)
        elif text[:1] not in (" ", "\t", ""):
            break  # neither a frame nor its source: the traceback is not there
    return Traceback(tuple(reversed(frames)))


def _text(line: bytes) -> str:
    return strip_ansi(line[:2000].decode("utf-8", "replace").rsplit("\r", 1)[-1])


def _owner(line: str) -> str:
    """Which process said it. vLLM puts prefixes of its own below Ray's, one for each process on the way."""
    owner = ""
    while found := RAY_PREFIX.match(line):
        owner += f"{found['pid']}@{found['ip']} "
        line = line[found.end() :]
    return owner
