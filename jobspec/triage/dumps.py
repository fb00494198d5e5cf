"""Dumps of a run that stands still among the files for triage: stacks, flight recorders, watchdogs.

All dumps are read together, since the rank that differs is seen only beside the others.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from jobspec.finding import Finding, warning
from jobspec.runtime.stalls import cohorts, explain, flight, ras, stacks
from jobspec.runtime.stalls.cohorts import View
from jobspec.runtime.stalls.explanation import Explanation
from jobspec.runtime.stalls.flight import RankDump
from jobspec.runtime.stalls.stacks import Process
from jobspec.triage.match import Match
from jobspec.triage.ranking import HANGS, first_cause
from jobspec.triage.signatures import BLOCKED, FAIL
from jobspec.triage.silence import STALL

MOST_BYTES = 64 * 1024**2  # of a text, from its end
MOST_GROUPS = 6
# torch's default names and those that jobspec gives; they have no suffix.
NAME = re.compile(r"(?:trace_rank_|flight[-_.]?(?:rank)?[-_.]?|rank[-_.]?)(\d+)(?:\.(?:pickle|pkl|json))?$")
_MARK = re.compile(
    rb"most recent call first\):|^Process \d+|^Thread \d+ \(|[Ll]ast enqueued (?:NCCL )?work|WorkNCCL\("
    rb"|^Communicators\.\.\. ",
    re.M,
)


# One of them is in all that `_MARK` finds: these texts are found a hundred times faster.
_HINTS = (
    b"most recent call first):",
    b"Process ",
    b"Thread ",
    b"ast enqueued ",
    b"WorkNCCL(",
    b"Communicators... ",
)


@dataclass
class Dumps:
    """What the files hold of dumps."""

    processes: list[Process] = field(default_factory=list)
    recorders: list[RankDump] = field(default_factory=list)
    watchdog: list[str] = field(default_factory=list)
    ras: list[ras.Trouble] = field(default_factory=list)
    texts: dict[str, str] = field(default_factory=dict)


def is_dump_name(name: str) -> bool:
    return NAME.search(name) is not None


def is_recorder(path: Path) -> bool:
    """Whether the file is no text to scan: a pickle, or a recorder's JSON."""
    if not path.is_file():  # a pipe gives its bytes only once
        return False
    try:
        with path.open("rb") as stream:
            head = stream.read(4096)
    except OSError:
        return False
    return head[:1] == b"\x80" or (head[:1] == b"{" and (b'"entries"' in head or b'"pg_' in head))


def has_dump(data: bytes) -> bool:
    """Whether there is a stack, a watchdog's word or RAS text in a file's bytes."""
    return any(hint in data for hint in _HINTS) and _MARK.search(data) is not None


def read(paths: Iterable[Path], problems: list[Finding]) -> Dumps:
    """The dumps in the files; `problems` takes a finding for each recorder that cannot be read."""
    dumps = Dumps()
    for path in paths:
        if not path.is_file():
            continue
        if is_recorder(path):
            _recorder(path, dumps, problems)
            continue
        try:
            with path.open("rb") as stream:
                stream.seek(max(0, path.stat().st_size - MOST_BYTES))
                data = stream.read(MOST_BYTES)
        except OSError:
            continue
        if not has_dump(data):
            continue
        text = data.decode("utf-8", "replace")
        found = stacks.read(text, str(path))
        if found:
            dumps.processes += found
            dumps.texts[str(path)] = text
        if troubles := ras.read(text):
            dumps.ras = troubles  # each process tells of all
            dumps.texts.setdefault(str(path), text)
        dumps.watchdog += [line for line in text.splitlines() if "enqueued" in line or "WorkNCCL(" in line]
    return dumps


def _recorder(path: Path, dumps: Dumps, problems: list[Finding]) -> None:
    named = NAME.search(path.name)
    rank = int(named[1]) if named else len(dumps.recorders)
    try:
        dumps.recorders.append(flight.read(path, rank, str(path)))
    except (flight.DumpError, OSError) as problem:
        what = f"`{path}` is no flight recorder's dump that can be read: {problem}"
        problems.append(warning("triage.dump", what, fix="dump it again with torch, or leave it out"))


def with_dumps(matches: Sequence[Match], dumps: Dumps) -> list[Match]:
    """The matches with what the dumps show; first where the logs name nothing but the silence itself."""
    fronts = flight.fronts(dumps.recorders)
    seen = [front for front in flight.from_watchdog(dumps.watchdog) if front.absent or front.other]
    cause = first_cause(matches)
    if seen and cause is not None and cause.signature in HANGS:
        told = replace(cause, facts=(*cause.facts, explain.of_front(seen[0]).what))
        matches = [told if match is cause else match for match in matches]
        cause = told
    if not (dumps.processes or fronts or dumps.ras):
        return list(matches)
    found = explain.explain(View(dumps.processes, fronts=fronts or seen, ras=dumps.ras))
    told = _match(found, dumps)
    silent = cause is None or cause.generic or cause.kind == STALL or cause.signature in HANGS
    return [told, *matches] if silent else [*matches, told]


def _match(found: Explanation, dumps: Dumps) -> Match:
    file, line, text = _place(found, dumps)
    groups = tuple(cohorts.group_line(group) for group in found.cohorts[:MOST_GROUPS])
    more = len(found.cohorts) - len(groups)
    why = "; ".join(
        part for part in (found.why, "inferred" if found.inferred and not found.why else "") if part
    )
    return Match(
        signature=f"stall.{found.kind}",
        kind=STALL,
        verdict=BLOCKED if found.blocked else FAIL,
        file=file,
        line=line,
        text=text or found.what,
        title=found.what,
        why=why,
        fix=found.fix,
        node=found.node,
        facts=(*groups, *((f"{more} further groups",) if more > 0 else ())),
    )


def _place(found: Explanation, dumps: Dumps) -> tuple[str, int, str]:
    """Where the frame that is named stands in the dumps."""
    sources = [process.source for process in found.named] or list(dumps.texts)
    if found.frame is not None:
        forms = (
            str(found.frame),
            f'"{found.frame.file}", line {found.frame.line}, in {found.frame.function}',
        )
        for source in dict.fromkeys([*sources, *dumps.texts]):
            for number, line in enumerate(dumps.texts.get(source, "").splitlines(), 1):
                if any(form in line for form in forms):
                    return source, number, line.strip()
    recorders = [dump.source for dump in dumps.recorders]
    return next(iter([*sources, *recorders]), ""), 1, ""
