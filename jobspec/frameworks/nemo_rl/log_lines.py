"""Lines of NeMo-RL's logs that prove something, read in one pass over logs of any size."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO

from jobspec.frameworks.nemo_rl.proof_lines import PROOFS, Proof
from jobspec.log_text import RAY_REPEATED, strip_ansi
from jobspec.verdict import EvidenceItem

BLOCK_BYTES = 4 * 1024**2
MAX_LINE_BYTES = 256 * 1024  # a printed configuration is one line of about 30 KiB
MAX_SHOWN = 300
MAX_LINES = 400  # kept for each proof and log
DIGITS = b"0123456789"
MAX_SHAPES = 200_000  # distinct shapes remembered, about 40 MB; then the memory starts anew
MAX_COUNTED = 200_000  # of those that are told apart by what they captured
COUNTED = frozenset({"header", "step", "sc-step", "saving", "saved", "loaded", "complete", "check"})


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

    A log that cannot be opened shows nothing. The first `MAX_LINES` for each proof and log are kept, more
    where single steps count.
    """
    hints: dict[bytes, list[Proof]] = {}
    for proof in proofs:
        for hint in proof.hints:
            hints.setdefault(hint.encode().translate(None, DIGITS), []).append(proof)
    shapes = _Shapes(hints)
    found: dict[str, list[Line]] = {}
    for path, name in logs:
        kept: dict[str, list[Line]] = {}
        try:
            with path.open("rb") as stream:
                for number, raw, asked in _lines_with_hint(stream, shapes):
                    _match(raw, number, name, asked, kept)
        except OSError:
            continue
        for proof_name, lines in kept.items():
            found.setdefault(proof_name, []).extend(lines)
    return {name: tuple(lines) for name, lines in found.items()}


def _match(raw: bytes, number: int, name: str, asked: Iterable[Proof], kept: dict[str, list[Line]]) -> None:
    open_ = [proof for proof in asked if len(kept.get(proof.name, ())) < _limit(proof)]
    if not open_:
        return
    text = strip_ansi(raw.decode("utf-8", "replace").rstrip("\r\n").rpartition("\r")[2])
    text = RAY_REPEATED.sub("", text)
    for proof in open_:
        match = proof.pattern.search(text)
        if match is None:
            continue
        # The whole of a long line helps nobody: what is shown starts shortly before the match.
        shown = text if len(text) <= MAX_SHOWN else text[max(0, match.start() - 20) :][:MAX_SHOWN]
        line = Line(EvidenceItem(name, number, shown.strip()), tuple(part or "" for part in match.groups()))
        kept.setdefault(proof.name, []).append(line)


def _limit(proof: Proof) -> int:
    return MAX_COUNTED if proof.name in COUNTED else MAX_LINES


@dataclass
class _Shapes:
    """Lines without their digits: most lines of a log are a few shapes, and only a new one is searched."""

    hints: Mapping[bytes, list[Proof]]
    hot: dict[bytes, list[Proof]] = field(default_factory=dict)
    quiet: set[bytes] = field(default_factory=set)

    def learn(self, shapes: set[bytes]) -> None:
        if len(self.quiet) > MAX_SHAPES:
            self.quiet.clear()
        fresh = shapes - self.quiet - self.hot.keys()
        text = b"\n".join(fresh)
        present = [hint for hint in self.hints if hint in text]
        for shape in fresh:
            found = [proof for hint in present if hint in shape for proof in self.hints[hint]]
            if found:
                self.hot[shape] = list(dict.fromkeys(found))
            else:
                self.quiet.add(shape)


def _lines_with_hint(stream: BinaryIO, shapes: _Shapes) -> Iterator[tuple[int, bytes, list[Proof]]]:
    """Number, bytes and possible proofs of each line that holds a hint, in order."""
    number, rest = 1, b""
    while data := stream.read(BLOCK_BYTES):
        data = rest + data
        cut = data.rfind(b"\n") + 1
        if cut == 0:
            # A progress bar that never ends its line: only its latest state is kept.
            rest = data[-BLOCK_BYTES:]
            continue
        block, rest = data[: cut - 1], data[cut:]
        yield from _of_block(block, number, shapes)
        number += block.count(b"\n") + 1
    yield from _of_block(rest, number, shapes)


def _of_block(block: bytes, number: int, shapes: _Shapes) -> Iterator[tuple[int, bytes, list[Proof]]]:
    forms = block.translate(None, DIGITS).split(b"\n")
    distinct = set(forms)
    shapes.learn(distinct)
    if distinct.isdisjoint(shapes.hot.keys()):
        return
    lines = block.split(b"\n")
    for offset, form in enumerate(forms):
        proofs = shapes.hot.get(form)
        if proofs is not None:
            yield number + offset, lines[offset][:MAX_LINE_BYTES], proofs


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
