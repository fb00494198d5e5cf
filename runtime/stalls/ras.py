"""NCCL's RAS: its status text, asked of a process that listens, and the ranks that lag or do not answer.

Counts are of launches, which run ahead of the GPU: who has launched more is not to blame, and who has
launched less may be late. Sources: NCCL's `src/ras/client.cc` and `client_support.cc`, 2.24 to 2.31.
"""

from __future__ import annotations

import contextlib
import re
import socket
import time
from dataclasses import dataclass
from typing import Dict, List, Mapping, Optional, Sequence, Set, Tuple

from jobspec.runtime.stalls.stacks import MAX_LINE

ADDRESS = ("localhost", 28028)
HANDSHAKE_S, ANSWER_S, LEG_S = 1.0, 15.0, 5
TRIES = 4  # all processes of a node share the port, and one that is stopped takes a connection as well
MAX_BYTES = 256 * 1024
MISMATCH, INCOMPLETE = "MISMATCH", "INCOMPLETE"


@dataclass(frozen=True)
class Member:
    """A rank of a communicator, which need not be the rank of the run."""

    rank: int
    pid: int
    node: str


@dataclass(frozen=True)
class Count:
    """Ranks that have launched as many operations. `members` are those that RAS names."""

    launched: int
    ranks: int
    members: Tuple[Member, ...] = ()


@dataclass(frozen=True)
class Trouble:
    """What RAS says of one communicator: ranks that do not answer, or counts of one operation that differ."""

    kind: str
    group: str
    size: int
    op: str = ""
    counts: Tuple[Count, ...] = ()
    missing: Tuple[Member, ...] = ()
    dead: bool = False

    @property
    def pids(self) -> Set[int]:
        """Of all that it names."""
        return {one.pid for one in (*self.missing, *(one for count in self.counts for one in count.members))}

    @property
    def lagging(self) -> Tuple[Member, ...]:
        """The ranks with the fewest launches, where they are the smaller part and named."""
        least = min(self.counts, key=lambda count: count.launched, default=None)
        few = least is not None and least.ranks * 2 < sum(count.ranks for count in self.counts)
        return least.members if least is not None and few and len(least.members) == least.ranks else ()

    def __str__(self) -> str:
        of = f"NCCL's communicator {self.group}" + (f" ({self.size} ranks)" if self.size else "")
        if self.kind == INCOMPLETE:
            who = "; ".join(_who(member) for member in self.missing) or "some ranks"
            return f"{who} of {of} {'cannot be reached' if self.dead else 'gives no answer'}"
        said = ", ".join(_launched(count) for count in sorted(self.counts, key=lambda c: -c.launched))
        return f"in {of} {said} operations{'' if self.op == 'collective' else f' {self.op}'}"


def _who(member: Member) -> str:
    return f"rank {member.rank} (process {member.pid} on {member.node})"


def _launched(count: Count) -> str:
    named = count.members[:4] if len(count.members) == count.ranks else ()
    who = "; ".join(_who(member) for member in named) or f"{count.ranks} ranks"
    return f"{who} {'has' if count.ranks == 1 else 'have'} launched {count.launched}"


def address(env: Mapping[str, str]) -> Tuple[str, int]:
    host, _, port = env.get("NCCL_RAS_ADDR", "").rpartition(":")
    return (host.strip("[]") or ADDRESS[0], int(port)) if port.isdecimal() else ADDRESS


def ask(env: Mapping[str, str]) -> str:
    """RAS's verbose status; empty where no NCCL listens, or none answers in time."""
    for _ in range(TRIES):
        try:
            return _ask(address(env))
        except ConnectionRefusedError:
            return ""
        except OSError:
            continue
    return ""


def _ask(where: Tuple[str, int]) -> str:
    """Raises: OSError."""
    with socket.create_connection(where, HANDSHAKE_S) as link:
        link.sendall(b"CLIENT PROTOCOL 2\n")
        if not link.recv(128).startswith(b"SERVER PROTOCOL"):
            raise OSError("it is no RAS")
        link.sendall(f"TIMEOUT {LEG_S}\n".encode())
        link.recv(128)
        link.sendall(b"VERBOSE STATUS\n")
        data, end = b"", time.monotonic() + ANSWER_S
        with contextlib.suppress(socket.timeout):
            while len(data) < MAX_BYTES and time.monotonic() < end:
                link.settimeout(max(0.1, end - time.monotonic()))
                part = link.recv(65536)
                if not part:
                    break
                data += part
    return data.decode("utf-8", "replace")


_GROUP = re.compile(r"^ *(\d+) +\d+ +\d+ +\S+ +(\d+) +\d+ +[A-Z]+ +[A-Z,]+$")
_BLOCK = re.compile(r"^#(\d+)-(\d+) \([0-9a-f]+\) (\w+)$")
_OPS = re.compile(r"^  Communicator ranks have different (\w+) operation counts$")
_SOME = re.compile(r"^  (\d+) ranks have (?:launched up to operation (\d+)|not launched any operations)$")
_ONE = re.compile(
    r"^  Rank (\d+)(?: has (?:launched up to operation (?P<at>\d+)|(?P<none>not launched any operations)))?"
    r" -- (?:GPU \S+ managed by process (\d+) on node (\S+)|\[process information not found\])$"
)
_PROCESS = re.compile(r"^  Process (\d+) on node (\S+) managing GPU")
MARK = "Communicators..."


def read(text: str) -> List[Trouble]:
    """What the status texts in a log or a file complain about; the last one of each communicator counts."""
    sizes: Dict[str, int] = {}
    found: Dict[Tuple[str, str, str], Trouble] = {}
    dead: List[int] = []
    kind = group = op = ""
    counts: List[Count] = []
    for line in (line[:MAX_LINE] for line in text.splitlines()):
        if line.startswith(MARK):
            sizes, found, dead, kind = {}, {}, [], ""
        elif row := _GROUP.match(line):
            sizes[row[1]] = int(row[2])
        elif row := _BLOCK.match(line):
            group, kind, op, counts = f"#{row[1]}-{row[2]}", row[3], "", []
        elif line in (INCOMPLETE, "DEAD", "TIMEOUT"):
            group, kind = "", line
        elif row := _OPS.match(line):
            op, counts = row[1], []
        elif kind == "DEAD" and (row := _PROCESS.match(line)):
            dead.append(int(row[1]))
        elif kind in (MISMATCH, INCOMPLETE) and group:
            _take(line, kind, counts)
            if counts and (op or kind == INCOMPLETE):
                size = sizes.get(group[1:].split("-")[0], 0)
                found[(group, kind, op)] = _trouble(kind, group, size, op, counts, dead)
    return list(found.values())


def _take(line: str, kind: str, counts: List[Count]) -> None:
    """Add a line of a block to its counts."""
    if some := _SOME.match(line):
        counts.append(Count(int(some[2] or 0), int(some[1])))
    elif one := _ONE.match(line):
        member = Member(int(one[1]), int(one[4] or 0), one[5] or "")
        if one["at"] or one["none"]:
            counts.append(Count(int(one["at"] or 0), 1, (member,)))
        elif kind == INCOMPLETE or counts:
            last = counts.pop() if counts else Count(0, 0)
            counts.append(Count(last.launched, last.ranks, (*last.members, member)))


def _trouble(kind: str, group: str, size: int, op: str, counts: List[Count], dead: List[int]) -> Trouble:
    if kind == MISMATCH:
        return Trouble(kind, group, size, op, tuple(counts))
    missing = counts[-1].members
    return Trouble(kind, group, size, missing=missing, dead=all(one.pid in dead for one in missing))


def first(troubles: Sequence[Trouble]) -> Optional[Trouble]:
    """The one that names somebody: ranks that do not answer, else ranks that lag in the smallest group."""
    silent = [one for one in troubles if one.kind == INCOMPLETE and one.missing]
    lags = sorted((one for one in troubles if one.lagging), key=lambda one: one.size)
    return next(iter([*silent, *lags]), None)
