"""Lines of NeMo-RL's logs that prove something, read in one pass over logs of any size."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from jobspec.frameworks.nemo_rl.proofs import PROOFS, Proof
from jobspec.metrics.text import RAY_REPEATED, strip_ansi
from jobspec.verdict import EvidenceItem

BLOCK_BYTES = 4 * 1024**2
MAX_LINE_BYTES = 256 * 1024  # a printed configuration is one line of about 30 KiB
MAX_SHOWN = 300
MAX_LINES = 400  # kept for each proof and log


@dataclass(frozen=True)
class Line:
    """One line that shows a proof, with what its pattern captured."""

    item: EvidenceItem
    groups: tuple[str, ...] = ()

    @property
    def number(self) -> int:
        return self.item.line

    @property
    def file(self) -> str:
        return self.item.file


Lines = Mapping[str, tuple[Line, ...]]


def read_lines(logs: Iterable[tuple[Path, str]], proofs: Iterable[Proof] = PROOFS.values()) -> Lines:
    """Lines by proof, in the order of the logs (each given by path and name) and then of the lines.

    A log that cannot be opened shows nothing. At most `MAX_LINES` for each proof and log, the first ones and
    the last one.
    """
    wanted = tuple(proofs)
    hints: dict[bytes, list[Proof]] = {}
    for proof in wanted:
        for hint in proof.hints:
            hints.setdefault(hint.encode(), []).append(proof)
    found: dict[str, list[Line]] = {}
    for path, name in logs:
        kept: dict[str, list[Line]] = {}
        try:
            with path.open("rb") as stream:
                for number, raw, asked in _lines_with_hint(stream, hints):
                    _match(raw, number, name, asked, kept)
        except OSError:
            continue
        for proof_name, lines in kept.items():
            found.setdefault(proof_name, []).extend(lines)
    return {name: tuple(lines) for name, lines in found.items()}


def _match(raw: bytes, number: int, name: str, asked: Iterable[Proof], kept: dict[str, list[Line]]) -> None:
    text = strip_ansi(raw.decode("utf-8", "replace").rstrip("\r\n").rpartition("\r")[2])
    text = RAY_REPEATED.sub("", text)
    for proof in asked:
        match = proof.pattern.search(text)
        if match is None:
            continue
        lines = kept.setdefault(proof.name, [])
        # The whole of a long line helps nobody: what is shown starts shortly before the match.
        shown = text if len(text) <= MAX_SHOWN else text[max(0, match.start() - 20) :][:MAX_SHOWN]
        line = Line(EvidenceItem(name, number, shown.strip()), tuple(part or "" for part in match.groups()))
        if len(lines) >= MAX_LINES:
            lines.pop()
        lines.append(line)


def _lines_with_hint(
    stream: BinaryIO, hints: Mapping[bytes, list[Proof]]
) -> Iterator[tuple[int, bytes, list[Proof]]]:
    """Number, bytes and possible proofs of each line that holds a hint, in order."""
    number, rest = 1, b""
    while data := stream.read(BLOCK_BYTES):
        data = rest + data
        cut = data.rfind(b"\n") + 1
        if cut == 0:
            # A progress bar that never ends its line: only its latest state is kept.
            rest = data[-BLOCK_BYTES:]
            continue
        block, rest = data[:cut], data[cut:]
        yield from _of_block(block, number, hints)
        number += block.count(b"\n")
    yield from _of_block(rest, number, hints)


def _of_block(
    block: bytes, number: int, hints: Mapping[bytes, list[Proof]]
) -> Iterator[tuple[int, bytes, list[Proof]]]:
    starts: dict[int, list[Proof]] = {}
    for hint, proofs in hints.items():
        at = block.find(hint)
        while at >= 0:
            start = block.rfind(b"\n", 0, at) + 1
            asked = starts.setdefault(start, [])
            asked.extend(proof for proof in proofs if proof not in asked)
            end = block.find(b"\n", at)
            at = block.find(hint, end) if end >= 0 else -1
    counted = 0
    for start in sorted(starts):
        number += block.count(b"\n", counted, start)
        counted = start
        end = block.find(b"\n", start)
        line = block[start : end if end >= 0 else len(block)]
        yield number, line[:MAX_LINE_BYTES], starts[start]


def first(lines: Lines, name: str) -> tuple[EvidenceItem, ...]:
    """The first line that shows `name`, as evidence; `()` without one."""
    return tuple(line.item for line in lines.get(name, ())[:1])


def numbers(lines: Lines, name: str, group: int = 0) -> dict[int, EvidenceItem]:
    """Numbers that the lines of `name` captured, each with its first line."""
    found: dict[int, EvidenceItem] = {}
    for line in lines.get(name, ()):
        text = line.groups[group].replace(",", "")
        if re.fullmatch(r"\d+", text):
            found.setdefault(int(text), line.item)
    return found
