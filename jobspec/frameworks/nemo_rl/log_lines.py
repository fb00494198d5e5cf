"""Lines of NeMo-RL's logs that prove something, read in one pass over logs of any size."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import chain
from pathlib import Path

from jobspec.frameworks.nemo_rl.proof_lines import PROOFS, Proof
from jobspec.log_search import FoundLine, Hints, find_lines
from jobspec.log_text import RAY_REPEATED, strip_ansi
from jobspec.verdict import EvidenceItem

MAX_SHOWN = 300
MAX_LINES = 400  # kept for each proof and log
MAX_COUNTED = 200_000  # the same, for lines whose captured number counts
COUNTED = frozenset(
    {"launch", "trainer", "header", "step", "sc-step", "saving", "saved", "loaded", "complete", "check"}
)


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
    """Lines by proof, in the order of the logs (pairs of path and name) and then of the lines.

    An unreadable log shows nothing. For each proof and log the first `MAX_LINES` stay; where single steps
    count, `MAX_COUNTED` stay.
    """
    by_hint: dict[str, list[Proof]] = {}
    for proof in proofs:
        for hint in proof.hints:
            by_hint.setdefault(hint, []).append(proof)
    hints = Hints(by_hint)
    by_proof: dict[str, list[Line]] = {}
    for path, name in logs:
        kept: dict[str, list[Line]] = {}
        for line in find_lines(path, hints):
            possible = dict.fromkeys(chain.from_iterable(by_hint[hint] for hint in line.hints))
            _match(line, name, possible, kept)
        for proof_name, lines in kept.items():
            by_proof.setdefault(proof_name, []).extend(lines)
    return {name: tuple(lines) for name, lines in by_proof.items()}


def _match(hinted: FoundLine, name: str, possible: Iterable[Proof], kept: dict[str, list[Line]]) -> None:
    open_ = [proof for proof in possible if len(kept.get(proof.name, ())) < _limit(proof)]
    if not open_:
        return
    text = RAY_REPEATED.sub("", strip_ansi(hinted.text))
    for proof in open_:
        match = proof.pattern.search(text)
        if match is None:
            continue
        # A whole long line helps nobody: the shown part starts shortly before the match.
        shown = text if len(text) <= MAX_SHOWN else text[max(0, match.start() - 20) :][:MAX_SHOWN]
        line = Line(
            EvidenceItem(name, hinted.number, shown.strip()), tuple(part or "" for part in match.groups())
        )
        kept.setdefault(proof.name, []).append(line)


def _limit(proof: Proof) -> int:
    return MAX_COUNTED if proof.name in COUNTED else MAX_LINES


def first(lines: Lines, name: str) -> tuple[EvidenceItem, ...]:
    """The first line that shows `name`, as evidence; `()` without one."""
    return tuple(line.item for line in lines.get(name, ())[:1])


def numbers(lines: Lines, name: str, group: int = 0) -> dict[int, EvidenceItem]:
    """The numbers that lines of `name` captured, each with its first line."""
    items: dict[int, EvidenceItem] = {}
    for line in lines.get(name, ()):
        text = line.groups[group].replace(",", "")
        if re.fullmatch(r"\d+", text):
            items.setdefault(int(text), line.item)
    return items
