"""The traceback above an exception line: its frames, and whether it matters."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace

from jobspec.log_text import RAY_PREFIX, bare, strip_ansi

MAX_LINES = 160  # lines read backwards: a deep traceback of a trainer has about 100
# Python's own form, with loguru's mark of the innermost frame, rich's, and IPython's with that of a cell.
_FRAME = re.compile(
    r'^[\s>]*File "(.+?)", line (\d+), in (\S+)|^│ (/\S+?):(\d+) in (\S+)'
    r"|^File ([~/]\S*?):(\d+), in ([\w.<>]+)|^(Cell In\[\d+\]), line (\d+)()"
)
_DUMPED = re.compile(r'\s*File "(.+?)", line (\d+) in (\S+)')  # of faulthandler
_FATAL = re.compile(r"\bSIG(?:ABRT|SEGV|BUS|ILL|FPE)\b|Fatal Python error")
_CURRENT = re.compile(r"^(?:│ ❱ +|-+> )\d+ (?:│ +)*(.*?)\s*│?$")  # the statement that rich or IPython marks
_INSIDE = (" ", "\t", "", ">", "│", "╰", "-")  # how lines of a traceback begin
_HEAD = re.compile(r"Traceback \(most recent call last\)|^\s*ray::[\w.]+\(")
# Each line that is a frame or a head holds one of these.
_MARKS = (b"File ", "│".encode(), b"Cell ", b"Traceback", b"ray::")
# Libraries that carry other people's code: an error in them was mostly caused by their caller.
_CARRIER = re.compile(
    r"^<|^python/ray/|/lib/python3[^/]*/(?!(?:site|dist)-packages/)|/(?:site|dist)-packages/(?:torch|ray|hydra"
    r"|omegaconf|click|typer|tenacity|aiohttp|httpx|httpcore|requests|urllib3|anyio|uvloop|accelerate|submitit"
    r"|pydantic|datasets)(?:/|\.py$)|\.px[di]$|\.pyx$"
    r"|/huggingface_hub/utils/_(?:deprecation|validators)\.py$"  # decorators of others' functions
    r"|/bin/[^/.]+$"  # what pip puts in front of a package's program
)
# The outermost frame of a main program, but of those that `multiprocessing` starts.
_MAIN = re.compile(r"^(?!<string>).*:<module>$|^<frozen runpy>:_run_module_as_main$")
# A logger's line above a traceback: what it shows was caught.
_LOGGER = re.compile(r"\bERROR\b")
LINES_ON = 50  # below an exception, where a process that goes on says something
_CHAINED = "The above exception was the direct cause of the following exception:"
_CHAINED_BYTES = _CHAINED.encode()
# CPython 3.9 to 3.13 prints this line before a traceback and then goes on.
_IGNORED = re.compile(r"^\s*Exception ignored (?:in|on|while)\b")


@dataclass(frozen=True)
class Traceback:
    """The frames as `file:function`, outermost first; `ignored` when Python went on after the traceback,
    `logged` when a logger of one of Ray's workers printed it.

    `place` is the innermost frame that is no library's, as `file:line function`, `own` the same as
    `file:function`, `code` its statement and `offset` its line, -1 without one; `innermost` tells that no
    frame of a library is below it.
    """

    frames: tuple[str, ...] = ()
    ignored: bool = False
    logged: bool = False
    place: str = ""
    own: str = ""
    code: str = ""
    offset: int = -1
    innermost: bool = False

    @property
    def in_main(self) -> bool:
        """Whether the main program raised it: its first frame is that of the program's file."""
        return bool(self.frames) and _MAIN.search(self.frames[0]) is not None


def traceback_above(lines: Sequence[bytes], offset: int) -> Traceback:
    """The traceback of the exception at `lines[offset]`; an empty one if there is none.

    Interleaved lines of other workers are skipped: Ray's prefix names the worker of a line.
    """
    window = b"\n".join(lines[max(0, offset - MAX_LINES) : offset])
    if not any(mark in window for mark in _MARKS):
        return Traceback()
    owner = _owner(_text(lines[offset]))
    frames: list[tuple[str, str, str]] = []
    codes: list[str] = []
    offsets: list[int] = []
    below, marked, ignored, logged = "", "", False, False
    for at in range(offset - 1, max(-1, offset - MAX_LINES), -1):
        raw = _text(lines[at])
        if _owner(raw) != owner:
            continue
        text = bare(raw)
        frame = _FRAME.match(text)
        if frame is not None:
            file, line, function = (group for group in frame.groups() if group is not None)
            frames.append((file, line, function or "<module>"))
            codes.append(below if frame[1] else marked)
            offsets.append(at)
            marked = ""
        elif _HEAD.search(text):
            ignored = _IGNORED.match(bare(_text(lines[at - 1])) if at else "") is not None
            logged = bool(owner) and _LOGGER.search(raw) is None and _headed(lines, at, owner)
            break
        elif text[:1] not in _INSIDE:
            break  # neither a frame nor its source: there is no traceback
        below = text.strip()
        current = _CURRENT.match(text)
        marked = current[1] if current is not None else marked
    at = next((at for at, (file, _, name) in enumerate(frames) if _is_own(file, name)), 0)
    own = frames[at] if frames else None
    return Traceback(
        tuple(f"{file}:{function}" for file, _, function in reversed(frames)),
        ignored,
        logged,
        f"{own[0]}:{own[1]} {own[2]}" if own is not None else "",
        f"{own[0]}:{own[2]}" if own is not None else "",
        codes[at] if codes else "",
        offsets[at] if offsets else -1,
        bool(frames) and at == 0,
    )


def traceback_of(lines: Sequence[bytes], offset: int) -> Traceback:
    """The traceback of the exception at `lines[offset]`; of one that a pool of processes raised again in its
    caller, with the same words, with the place where it was raised first."""
    own = traceback_above(lines, offset)
    if not own.frames or _CHAINED_BYTES not in b"\n".join(lines[max(0, offset - 2 * MAX_LINES) : offset]):
        return own
    words, chained = bare(_text(lines[offset])).strip(), False
    for at in range(offset - 1, max(-1, offset - 2 * MAX_LINES), -1):
        text = bare(_text(lines[at])).strip()
        if chained and text not in ("", '"""'):
            first = traceback_above(lines, at) if text == words else own
            frames = own.frames if first is own else own.frames + first.frames
            return replace(first, frames=frames, ignored=own.ignored, logged=own.logged)
        chained = chained or text == _CHAINED
    return own


def _is_own(file: str, name: str) -> bool:
    """Whether a frame may be where the mistake is: no carrier's, nor that of an attribute's look-up."""
    return name != "__getattr__" and not _CARRIER.search(file)


def lines_below(lines: Sequence[bytes], offset: int, count: int = 3) -> list[str]:
    """What the process of `lines[offset]` printed next, without prefixes."""
    owner = _owner(_text(lines[offset]))
    after = (_text(line) for line in lines[offset + 1 : offset + 1 + LINES_ON])
    return [bare(line) for line in after if _owner(line) == owner][:count]


def same_voice_below(lines: Sequence[bytes], offset: int, count: int) -> list[str]:
    """The lines right below `lines[offset]` that its process printed under the same head of a launcher or
    logger: a message of several lines has it in all of them."""
    owner, head = _owner(_text(lines[offset])), _head(lines[offset])
    below = list[str]()
    for line in lines[offset + 1 : offset + 1 + LINES_ON]:
        raw = _text(line)
        if _owner(raw) != owner:
            continue
        if _head(line) != head or len(below) == count:
            break
        below.append(bare(raw))
    return below


def raised_below(lines: Sequence[bytes], offset: int) -> tuple[int, str]:
    """How many lines below `lines[offset]` its traceback ends, and with what; "" if nowhere."""
    owner = _owner(_text(lines[offset]))
    for below, line in enumerate(lines[offset + 1 : offset + MAX_LINES], 1):
        raw = _text(line)
        text = bare(raw)
        if _owner(raw) == owner and text[:1] not in _INSIDE:
            return below, text
    return 0, ""


def thread_below(lines: Sequence[bytes], offset: int) -> tuple[int, str]:
    """Of the current thread, as CPython's faulthandler prints it below a fatal signal: how many lines below
    the innermost frame that is no carrier's stands, and this as `file:line function`; (0, "") if none."""
    if _FATAL.search(_text(lines[offset])) is None:
        return 0, ""
    owner, current = _owner(_text(lines[offset])), False
    for below, line in enumerate(lines[offset + 1 : offset + 1 + LINES_ON], 1):
        raw = _text(line)
        text = bare(raw)
        if _owner(raw) != owner:
            continue
        frame = _DUMPED.match(text)
        if current and frame is None:
            break
        if current and frame is not None and _is_own(frame[1], frame[3]):
            return below, f"{frame[1]}:{frame[2]} {frame[3]}"
        current = current or text.startswith("Current thread 0x")
    return 0, ""


def goes_on(lines: Sequence[bytes], offset: int) -> bool:
    """Whether the process that printed `lines[offset]` says something else soon after it."""
    owner = _owner(_text(lines[offset]))
    after = (_text(line) for line in lines[offset + 1 : offset + 1 + LINES_ON])
    said = (bare(line) for line in after if _owner(line) == owner and "repeated " not in line)
    return any(line[:1] not in ("", " ", "[") for line in said)


def _headed(lines: Sequence[bytes], at: int, owner: str) -> bool:
    """Whether the last line of that process before `lines[at]` is that of a logger."""
    before = (_text(line) for line in reversed(lines[max(0, at - LINES_ON) : at]))
    return _LOGGER.search(next((line for line in before if _owner(line) == owner), "")) is not None


def _text(line: bytes) -> str:
    return strip_ansi(line[:2000].decode("utf-8", "replace").rsplit("\r", 1)[-1])


def _head(line: bytes) -> str:
    """What stands before the program's own words, without numbers."""
    raw = _text(line)
    return re.sub(r"\d+", "", raw[: max(0, raw.find(bare(raw).strip()))]).strip()


def _owner(line: str) -> str:
    """The processes in the line's prefixes. vLLM puts its own prefixes after Ray's, one for each process."""
    owner = ""
    while match := RAY_PREFIX.match(line):
        owner += f"{match['pid']}@{match['ip']} "
        line = line[match.end() :]
    return owner
