"""The user's list of nodes to avoid, `nodes.json` in the state folder: shared by all submissions of one user.

An entry names its cluster, its reason and when it ends. One that a report made and the user took off stays as
`removed` until then, or the next report of that run would bring it back. The file is replaced in one step
under a lock; what it holds is data, checked value by value, and a file that cannot be read is never replaced.
"""

from __future__ import annotations

import json
import math
import os
import re
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

from jobspec.finding import Finding, JobspecError, fail, one_line, warning
from jobspec.runs.store import state_folder
from jobspec.runtime.base.node_lock import hold
from jobspec.runtime.base.run_files import open_file, parse_json
from jobspec.runtime.base.safe_write import write_text

FILE = "nodes.json"
VERSION = 1
MAX_BYTES = 4 * 1024**2
MAX_ENTRIES = 4096
MAX_TEXT = 400
LOCK_S = 10.0
NODE = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,251}")  # stands in `--exclude`: no list, no option
DAY = 86_400.0
_LATEST = 253_402_300_800.0  # the year 10000


@dataclass(frozen=True)
class Avoided:
    """A node of one cluster to keep away from until `until`, in seconds since the epoch.

    `run`, `attempt`, `file`, `line` and `text` are the evidence; an entry made by hand may have none.
    """

    node: str
    cluster: str
    until: float
    reason: str = ""
    run: str = ""
    attempt: int = 0
    file: str = ""
    line: int = 0
    text: str = ""
    since: float = 0.0
    removed: bool = False

    @property
    def evidence(self) -> str:
        """The place of the evidence in one line; empty for an entry without any."""
        attempt = f"attempt {self.attempt}" if self.attempt else ""
        place = f"{self.file}:{self.line}" if self.line else self.file
        return ", ".join(part for part in (self.run, attempt, place) if part)


_TYPES: Mapping[str, type | tuple[type, ...]] = {"str": str, "float": (int, float), "int": int, "bool": bool}
_KINDS = {item.name: _TYPES[str(item.type)] for item in fields(Avoided)}


def listed(env: Mapping[str, str], now: float | None = None) -> tuple[tuple[Avoided, ...], list[Finding]]:
    """The entries in force, and a warning where the list cannot be read: then it excludes nothing."""
    try:
        entries = _read(_file(env))
    except JobspecError as problem:
        found = problem.findings[0]
        why = f"{found.why}; no node is excluded by it"
        return (), [warning(found.rule, found.what, why, found.fix, file=found.file)]
    return tuple(entry for entry in _in_force(entries, now) if not entry.removed), []


def add(env: Mapping[str, str], new: Iterable[Avoided]) -> tuple[Avoided, ...]:
    """Put entries on the list; each replaces the node's own. Raises: JobspecError, OSError."""
    added = tuple(new)

    def change(entries: list[Avoided]) -> list[Avoided]:
        named = {(entry.cluster, entry.node) for entry in added}
        return [*(entry for entry in entries if (entry.cluster, entry.node) not in named), *added]

    _change(env, change)
    return added


def add_once(env: Mapping[str, str], new: Iterable[Avoided]) -> tuple[Avoided, ...]:
    """As `add`, but without what has ended, what a longer entry covers, and what the list has, or had, of the
    same attempt; what was added. Raises: JobspecError, OSError.
    """
    added: list[Avoided] = []
    wanted = list(_in_force(new, None))

    def change(entries: list[Avoided]) -> list[Avoided]:
        known = {(entry.cluster, entry.node): entry for entry in entries}
        for entry in wanted:
            old = known.get((entry.cluster, entry.node))
            same = old is not None and (old.run, old.attempt) == (entry.run, entry.attempt)
            if old is None or not (same or (not old.removed and old.until >= entry.until)):
                known[entry.cluster, entry.node] = entry
                added.append(entry)
        return list(known.values())

    if wanted:
        _change(env, change)
    return tuple(added)


def remove(env: Mapping[str, str], nodes: Iterable[str], cluster: str | None) -> tuple[Avoided, ...]:
    """Take nodes off the list, of one cluster or of all; what was taken. Raises: JobspecError, OSError."""
    named, taken = set(nodes), list[Avoided]()

    def change(entries: list[Avoided]) -> list[Avoided]:
        kept = []
        for entry in entries:
            if entry.removed or entry.node not in named or cluster not in (None, entry.cluster):
                kept.append(entry)
                continue
            taken.append(entry)
            if entry.attempt:
                kept.append(Avoided(**{**asdict(entry), "removed": True}))
        return kept

    _change(env, change)
    return tuple(taken)


def _file(env: Mapping[str, str]) -> Path:
    return state_folder(env) / FILE


def _in_force(entries: Iterable[Avoided], now: float | None) -> Iterable[Avoided]:
    at = time.time() if now is None else now
    return (entry for entry in entries if entry.until > at)


def _change(env: Mapping[str, str], change: Callable[[list[Avoided]], list[Avoided]]) -> None:
    """Read, change and replace the list, alone; what has ended goes. Raises: JobspecError, OSError."""
    file = _file(env)
    file.parent.mkdir(parents=True, exist_ok=True)
    with hold(str(file.with_suffix(".lock")), time.monotonic() + LOCK_S):
        before = _read(file)
        after = sorted(change([*_in_force(before, None)]), key=lambda entry: (entry.cluster, entry.node))
        rows = [{key: value for key, value in asdict(entry).items() if value} for entry in after]
        text = json.dumps({"version": VERSION, "nodes": rows}, indent=1) + "\n"
        if len(after) > MAX_ENTRIES or len(text) > MAX_BYTES:  # what could not be read again
            what = f"the list of nodes to avoid would have {len(after)} entries in {len(text)} bytes"
            why = f"it has at most {MAX_ENTRIES} entries and {MAX_BYTES} bytes"
            fix = "take nodes off by `jobspec nodes remove`, or give a shorter reason"
            raise fail("nodes.too-long", what, why, fix, file=str(file))
        if after != before:
            write_text(file, text, 0o600)


def _read(file: Path) -> list[Avoided]:
    """All entries; none without a file. Raises: JobspecError for one that cannot be read whole."""
    try:
        with open_file(file) as opened:
            text = opened.read(MAX_BYTES + 1)
    except FileNotFoundError:
        return []
    except OSError as problem:
        raise _damaged(file, (problem.strerror or str(problem)).lower()) from problem
    if len(text) > MAX_BYTES:
        raise _damaged(file, f"it is larger than {MAX_BYTES // 1024**2} MiB")
    try:
        data = parse_json(text)
    except ValueError as problem:
        raise _damaged(file, "it is no JSON") from problem
    if not isinstance(data, dict) or not isinstance(data.get("nodes"), list):
        raise _damaged(file, "it has no list `nodes`")
    if data.get("version") != VERSION:
        raise _damaged(file, f"it has version {str(data.get('version'))[:40]}, this jobspec reads {VERSION}")
    if len(data["nodes"]) > MAX_ENTRIES:
        raise _damaged(file, f"it has more than {MAX_ENTRIES} entries")
    return [_entry(file, number, row) for number, row in enumerate(data["nodes"])]


def _entry(file: Path, number: int, row: object) -> Avoided:
    values = row if isinstance(row, dict) else {}
    known: dict[str, Any] = {key: values[key] for key in _KINDS if key in values}
    for key, value in known.items():
        fits = isinstance(value, _KINDS[key]) and (isinstance(value, bool) == (_KINDS[key] is bool))
        if isinstance(value, int | float) and not (math.isfinite(value) and 0 <= value < _LATEST):
            fits = False
        if isinstance(value, str) and len(value) > 10 * MAX_TEXT:
            fits = False
        if not fits:
            raise _damaged(file, f"`{key}` of entry {number + 1} cannot be {str(value)[:40]!r}")
    if not {"node", "cluster", "until"} <= known.keys() or not NODE.fullmatch(known["node"]):
        raise _damaged(file, f"entry {number + 1} names no node, no cluster or no end")
    texts = {key: _plain(value) for key, value in known.items() if isinstance(value, str)}
    return Avoided(**{**known, **texts})


def _plain(text: str) -> str:
    """A line of a log for terminals, YAML and reports: control and half characters are shown, not sent."""
    return one_line(text.encode("utf-8", "backslashreplace").decode())


def _damaged(file: Path, why: str) -> JobspecError:
    return fail(
        "nodes.damaged",
        "the list of nodes to avoid cannot be read",
        why,
        f"remove `{os.fspath(file)}`, and add the nodes again by `jobspec nodes add`",
        file=str(file),
    )
