"""Looks at this machine for the fact that decides: file systems, port range, partitions, locks, credentials.

Only `jobspec triage` uses it. The log may come from another machine: something is told only of a log that
names this one, and each fact says that it is about this machine now. A question without an answer gives none.
"""

from __future__ import annotations

import gzip
import os
import re
import shutil
import socket
import subprocess
import time
import zlib
from collections.abc import Callable
from pathlib import Path

from jobspec.triage.deciding_facts import CREDENTIALS, DISK_KINDS, PORT_KIND, path_of, port_fact, port_of
from jobspec.triage.match import Match
from jobspec.units import GIB, gib

PORT_RANGE = Path("/proc/sys/net/ipv4/ip_local_port_range")
SINFO_TIMEOUT_S = 5.0
HEAD_BYTES = 4 * 1024**2  # of a log, searched for this machine's name
GZIP_MAGIC = b"\x1f\x8b"
LOCK_KINDS = frozenset({"cache-lock", "stale-lock"})
TIME_SIGNATURES = frozenset({"slurm.time-request", "slurm.time-limit", "slurm.time-limit-signal"})


def look_up(match: Match, is_own: Callable[[Match], bool]) -> tuple[str, ...]:
    """Facts of this machine about the match; `()` where none decides or none can be had.

    `is_own` says whether the match's log is of a run on this machine.
    """
    look = next((look for applies, look in _LOOKS if applies(match)), None)
    if look is None or not is_own(match):
        return ()
    try:
        return look(match)
    except (OSError, ValueError):  # a path that is too long, or that this user may not look at
        return ()


def names_this_machine(text: str) -> bool:
    """Whether a log names this machine, by a name that is no common word."""
    full = socket.gethostname()
    names = {name for name in (full, full.split(".")[0]) if re.search(r"[\d.-]", name)}
    return any(re.search(rf"(?<![\w.-]){re.escape(name)}(?![\w-])", text) for name in names)


def is_own(match: Match) -> bool:
    """Whether the beginning of the match's log, or the lines around the match, name this machine."""
    if names_this_machine("\n".join(match.context)):
        return True
    path = Path(match.file)
    if not path.is_file():  # standard input, or a pipe, which opens only once
        return False
    try:
        with path.open("rb") as stream:
            packed = stream.read(2) == GZIP_MAGIC
        with gzip.open(path) if packed else path.open("rb") as log:
            head = log.read(HEAD_BYTES)
    except (OSError, EOFError, zlib.error):  # a file that is torn or not packed by gzip
        return False
    return names_this_machine(head.decode("utf-8", "replace"))


def _disk(match: Match) -> tuple[str, ...]:
    named = path_of(match.text)
    place = _existing(Path(named)) if named else None
    if place is None:
        return ()
    usage = shutil.disk_usage(place)
    nodes = os.statvfs(place)
    space = f"here, now: {place} has {usage.free / GIB:.1f} of {gib(usage.total, 1)} free"
    return (space, "and no free inode") if nodes.f_files and not nodes.f_favail else (space,)


def _existing(path: Path) -> Path | None:
    """The path or its nearest existing parent; None for the root alone: the path is of another machine."""
    nearest = next((folder for folder in (path, *path.parents) if folder.exists()), None)
    return nearest if nearest is not None and nearest != Path("/") else None


def _port(match: Match) -> tuple[str, ...]:
    try:
        low, high = (int(word) for word in PORT_RANGE.read_text("ascii").split())
    except (OSError, ValueError):
        return ()
    return port_fact(port_of(match.text), (low, high), f"on {socket.gethostname()}")


def _time_limit(match: Match) -> tuple[str, ...]:
    if shutil.which("sinfo") is None:
        return ()
    try:
        done = subprocess.run(
            ["sinfo", "-h", "-o", "%P %l"], capture_output=True, timeout=SINFO_TIMEOUT_S, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return ()
    rows = (line.split() for line in done.stdout.decode("utf-8", "replace").splitlines())
    limits = dict(row for row in rows if len(row) == 2)
    listed = ", ".join(f"{name.rstrip('*')} {limit}" for name, limit in sorted(limits.items()))
    return (f"time limits of the partitions here: {listed}",) if listed else ()


def _lock(match: Match) -> tuple[str, ...]:
    path = path_of(match.text)
    if not path:
        return ()
    try:
        age = time.time() - Path(path).stat().st_mtime
    except OSError:
        return (f"here, now: {path} is not there",) if _existing(Path(path)) else ()
    return (f"here, now: {path} is {age / 60:.0f} min old",)


def _credentials(match: Match) -> tuple[str, ...]:
    """Whether Enroot has a line for the registry; its content is never shown."""
    if not match.signature.startswith("container."):
        return ()
    base = os.environ.get("ENROOT_CONFIG_PATH") or str(Path.home() / ".config" / "enroot")
    path = Path(base, ".credentials")
    try:
        text = path.read_text("utf-8", "replace")
    except OSError:
        return (f"here, now: there is no {path}",)
    hosts = [
        words[1] for words in map(str.split, text.splitlines()) if words[:1] == ["machine"] and words[1:]
    ]
    return (f"here, now: {path} has lines for {', '.join(hosts) or 'no registry'}",)


_LOOKS: tuple[tuple[Callable[[Match], bool], Callable[[Match], tuple[str, ...]]], ...] = (
    (lambda match: match.kind in DISK_KINDS, _disk),
    (lambda match: match.kind == PORT_KIND, _port),
    (lambda match: match.signature in TIME_SIGNATURES, _time_limit),
    (lambda match: match.kind in LOCK_KINDS, _lock),
    (lambda match: match.kind == CREDENTIALS, _credentials),
)
