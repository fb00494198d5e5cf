"""The traceback above an exception line: its frames, and whether it matters."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from jobspec.log_text import RAY_PREFIX, bare, strip_ansi

MAX_LINES = 160  # lines read backwards: a deep traceback of a trainer has about 100
_FRAME = re.compile(r'^\s*File "([^"]+)", line \d+, in (\S+)')
_HEAD = re.compile(r"Traceback \(most recent call last\)|^\s*ray::[\w.]+\(")
# CPython 3.9 to 3.13 prints this line before a traceback and then goes on.
_IGNORED = re.compile(r"^\s*Exception ignored (?:in|on|while)\b")


@dataclass(frozen=True)
class Traceback:
    """The frames as `file:function`, outermost first; `ignored` when Python went on after the traceback."""

    frames: tuple[str, ...] = ()
    ignored: bool = False


def traceback_above(lines: Sequence[bytes], offset: int) -> Traceback:
    """The traceback of the exception at `lines[offset]`; an empty one if there is none.

    Interleaved lines of other workers are skipped: Ray's prefix names the worker of a line.
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
            break  # neither a frame nor its source: there is no traceback
    return Traceback(tuple(reversed(frames)))


def _text(line: bytes) -> str:
    return strip_ansi(line[:2000].decode("utf-8", "replace").rsplit("\r", 1)[-1])


def _owner(line: str) -> str:
    """The processes in the line's prefixes. vLLM puts its own prefixes after Ray's, one for each process."""
    owner = ""
    while match := RAY_PREFIX.match(line):
        owner += f"{match['pid']}@{match['ip']} "
        line = line[match.end() :]
    return owner
