"""For whom the threads of a node's processes wait, by the kernel's word.

That is who has the other end of a pipe or of a pair of sockets, who has locked a file, and which child is
waited for. Sources: proc(5), proc_locks(5), sock_diag(7).
"""

from __future__ import annotations

import contextlib
import re
import socket
import struct
from typing import Any, Dict, List, Mapping, Optional, Set, Tuple

from jobspec.runtime.stalls import calls, proc_facts

Known = Mapping[int, Dict[str, Any]]
Lock = Tuple[int, str]  # the pid that took it, and its file: device and inode
_TARGET = re.compile(r" on ((?:pipe|socket):\[(\d+)\])$")
_NETLINK = (socket.AF_NETLINK, socket.SOCK_RAW, 4)  # NETLINK_SOCK_DIAG
_POLLS = ("poll", "ppoll", "select", "pselect6")
_LOOPS = ("epoll_wait", "epoll_pwait")
_WRITES = ("write", "writev", "sendto", "sendmsg")
_LOCK = re.compile(r"^(?:lock:\t)?(\d+): (-> )?\w+ +\w+ +\w+ +(\d+) (\S+) ", re.MULTILINE)
_PIDFD = re.compile(r"^Pid:\s+(\d+)$", re.MULTILINE)
_AT_LOCKS, _NAPS = ("flock", "fcntl"), ("nanosleep", "clock_nanosleep")  # SQLite naps between its tries
SHOWN, COMMAND_CHARS = 8, 60

_BY_FAMILY, _DUMP, _DONE, _ERROR, _SHOW_PEER, _PEER = 20, 0x301, 3, 2, 4, 2
_HEADER, _ATTRIBUTES_AT = struct.Struct("=IHHII"), 32


def tell(known: Known) -> None:
    """Give each process `behind`: for each thread that waits so, who could end that."""
    ends: Dict[str, Dict[int, str]] = {}
    for pid, facts in known.items():
        for target, mode in facts.pop("ends", {}).items():
            ends.setdefault(target, {})[pid] = mode
    asked = [str(call) for facts in known.values() for call in facts.get("calls", {}).values()]
    at_sockets = any(" on socket:[" in call or call.startswith(_LOOPS) for call in asked)
    peers = _unix_peers() if at_sockets else {}
    locking = any(call.startswith((*_AT_LOCKS, *_NAPS)) for call in asked)
    openers = _openers(known) if locking else {}
    holders = _lock_holders(openers)
    if any(call.startswith(_NAPS) for call in asked):
        locked = _locked(openers)
        holders = {**_of_open_files(known, locked), **holders}
        for path, pid in locked.items():
            if path.endswith("lock"):
                known[pid].setdefault("locked", []).append(path)
    for pid, facts in known.items():
        behind: Dict[str, List[List[Any]]] = {}
        for thread, call in facts.get("calls", {}).items():
            found = _behind(pid, str(call), known, ends, peers, holders)
            if found is not None:
                behind[thread] = _rows(found, known, _far_end(str(call), peers))
            if _has_other_end(pid, str(call), ends, peers):
                facts.setdefault("own_ends", []).append(thread)
        if behind:
            facts["behind"] = behind
    for pid, facts in known.items():
        if not proc_facts.is_python(pid):
            continue
        for rows in facts.get("behind", {}).values():
            _beyond(rows, known, {pid})
    for facts in known.values():
        if "calls" in facts:
            facts["calls"] = {thread: _plain(str(call)) for thread, call in facts["calls"].items()}


def _behind(
    pid: int,
    call: str,
    known: Known,
    ends: Mapping[str, Mapping[int, str]],
    peers: Mapping[str, str],
    holders: Mapping[int, Set[int]],
) -> Optional[Set[int]]:
    """The processes that the call waits for, none of them itself; None where that is not known."""
    if call.startswith("wait") or " on /dev/ptmx" in call:
        children = {other for other, facts in known.items() if facts and facts["parent"] == pid}
        one = call.rpartition(" of ")[2]
        return children & {int(one) if one.isdecimal() else 0} or children or None
    if call.startswith((*_AT_LOCKS, *_NAPS)):
        return (holders.get(pid, set()) & set(known)) or None
    if call in _POLLS:
        read = [others for others in ends.values() if others.get(pid) == "r"]
        return {other for others in read for other, mode in others.items() if "w" in mode} - {pid} or None
    if call in _LOOPS:
        return (_programs(pid, known, ends, peers) | _awaited(pid)) & set(known) or None
    found = _at_other_end(call, ends, peers)
    return None if found is None else found - {pid}


def _at_other_end(
    call: str, ends: Mapping[str, Mapping[int, str]], peers: Mapping[str, str]
) -> Optional[Set[int]]:
    """All that have the other end of the pipe or pair of sockets open; None where that is not known."""
    found = _TARGET.search(call)
    if not found:
        return None
    if found[1].startswith("socket"):
        far = f"socket:[{peers.get(found[2], '')}]"
        return set(ends[far]) if far in ends else None
    wanted = "r" if call.split(" ", 1)[0] in _WRITES else "w"
    return {other for other, mode in ends.get(found[1], {}).items() if wanted in mode}


def _has_other_end(
    pid: int, call: str, ends: Mapping[str, Mapping[int, str]], peers: Mapping[str, str]
) -> bool:
    """Whether the process that waits has the other end itself, so that a thread of it could end the wait."""
    return pid in (_at_other_end(call, ends, peers) or ())


def _programs(
    pid: int, known: Known, ends: Mapping[str, Mapping[int, str]], peers: Mapping[str, str]
) -> Set[int]:
    """The children at the other ends of its pipes and sockets; a forked one has its own ends, too."""
    children = {other for other, facts in known.items() if facts and facts["parent"] == pid}
    found: Set[int] = set()
    for target, others in ends.items():
        if pid in others and target.startswith("socket"):
            found |= set(ends.get(f"socket:[{peers.get(target[8:-1], '')}]", ())) - set(others)
        elif others.get(pid, "").strip("0") in ("r", "w"):
            far = "w" if "r" in others[pid] else "r"
            found |= {other for other, mode in others.items() if mode.strip("0") == far}
    return found & children


def _awaited(pid: int) -> Set[int]:
    """The processes whose end it waits for by a descriptor, as asyncio does from Python 3.12 on."""
    infos = [
        proc_facts.text(f"/proc/{pid}/fdinfo/{name}")
        for name in proc_facts.names(f"/proc/{pid}/fd")
        if proc_facts.link(f"/proc/{pid}/fd/{name}") == "anon_inode:[pidfd]"
    ]
    return {int(found[1]) for info in infos if (found := _PIDFD.search(info))}


def _beyond(rows: List[List[Any]], known: Known, seen: Set[int]) -> None:
    """Add to each program that is no Python, and so has no stack in the dump, for whom it waits itself."""
    for row in rows:
        further = known[row[0]].get("behind", {}).get(str(row[0]), []) if row[0] not in seen else []
        if further and not proc_facts.is_python(row[0]):
            row.append([[*one[:3]] for one in further])
            _beyond(row[3], known, {*seen, row[0]})


def _far_end(call: str, peers: Mapping[str, str]) -> str:
    """The other end of the pair of sockets at which the call waits."""
    found = _TARGET.search(call)
    return f" on socket:[{peers.get(found[2], '')}]" if found and found[1].startswith("socket") else ""


def _rows(found: Set[int], known: Known, far: str) -> List[List[Any]]:
    """Those that could end a wait; of a pair of sockets those that wait at its other end, where any does:
    whom a fork has only left that end waits at one of its own."""
    at_it = {
        pid for pid in found
        if far and any(str(call).endswith(far) for call in known[pid].get("calls", {}).values())
    }  # fmt: skip
    rows = [_row(pid, known[pid]) for pid in sorted(at_it or found)[:SHOWN]]
    for row in rows if far and not at_it else ():
        row[2] = row[2].replace(" on socket", calls.ELSEWHERE)
    return rows


def _row(pid: int, facts: Mapping[str, Any]) -> List[Any]:
    """Its pid, command and system call: a program that is no Python has no stack in the dump."""
    call = _plain(str(facts.get("calls", {}).get(str(pid), "")))
    return [pid, str(facts.get("command", ""))[:COMMAND_CHARS], call]


def _plain(call: str) -> str:
    """The call without the number of a pipe or socket: ranks at such ones do the same."""
    return _TARGET.sub(lambda at: f" on {at[1].partition(':')[0]}", call)


def _openers(known: Known) -> Dict[Lock, Dict[int, str]]:
    """Each lock on a file -> the processes that have the locked file open, with its path. The owner that
    /proc/locks names is who took the lock: after a fork the child may have that file open, and the owner
    have closed it."""
    found: Dict[Lock, Dict[int, str]] = {}
    for pid in known if _LOCK.search(proc_facts.text("/proc/locks")) else ():
        for name in proc_facts.names(f"/proc/{pid}/fd"):
            target = proc_facts.link(f"/proc/{pid}/fd/{name}")
            if target.startswith("/"):
                for row in _LOCK.finditer(proc_facts.text(f"/proc/{pid}/fdinfo/{name}")):
                    found.setdefault((int(row[3]), row[4]), {})[pid] = target
    return found


def _lock_holders(openers: Mapping[Lock, Mapping[int, str]]) -> Dict[int, Set[int]]:
    """Who waits for a lock on a file -> who has the locked file open."""
    rows = list(_LOCK.finditer(proc_facts.text("/proc/locks"))) if openers else []
    taken = {row[1]: (int(row[3]), row[4]) for row in rows if not row[2]}
    found: Dict[int, Set[int]] = {}
    for row in rows:
        if row[2] and row[1] in taken:
            found.setdefault(int(row[3]), set()).update(openers.get(taken[row[1]], ()))
    return found


def _locked(openers: Mapping[Lock, Mapping[int, str]]) -> Dict[str, int]:
    """Each file that is locked -> who took the lock, or else one that has that file open since a fork."""
    return {
        path: owner if owner in paths else pid
        for (owner, _), paths in openers.items()
        for pid, path in sorted(paths.items())[:1]
    }


def _of_open_files(known: Known, locked: Mapping[str, int]) -> Dict[int, Set[int]]:
    """Who has a file open that another process has locked -> that other one."""
    found: Dict[int, Set[int]] = {}
    for pid in known if locked else ():
        for name in proc_facts.names(f"/proc/{pid}/fd"):
            owner = locked.get(proc_facts.link(f"/proc/{pid}/fd/{name}"), pid)
            if owner != pid:
                found.setdefault(pid, set()).add(owner)
    return found


def _unix_peers() -> Dict[str, str]:
    """The inode of each Unix socket that is connected -> that of the other end."""
    found: Dict[str, str] = {}
    body = struct.pack("=BBHIIIII", socket.AF_UNIX, 0, 0, 0xFFFFFFFF, 0, _SHOW_PEER, 0, 0)
    with contextlib.suppress(OSError, struct.error), socket.socket(*_NETLINK) as ask:
        ask.settimeout(1.0)
        ask.send(_HEADER.pack(_HEADER.size + len(body), _BY_FAMILY, _DUMP, 1, 0) + body)
        while _take(ask.recv(1 << 16), found):
            pass
    return found


def _take(data: bytes, found: Dict[str, str]) -> bool:
    """Take the sockets of one packet; whether more follow."""
    at = 0
    while at + _HEADER.size <= len(data):
        size, kind, _, _, _ = _HEADER.unpack_from(data, at)
        if kind in (_DONE, _ERROR) or size < _HEADER.size:
            return False
        (inode,) = struct.unpack_from("=I", data, at + _HEADER.size + 4)
        attribute = at + _ATTRIBUTES_AT
        while attribute + 4 <= at + size:
            length, name = struct.unpack_from("=HH", data, attribute)
            if name == _PEER:
                found[str(inode)] = str(struct.unpack_from("=I", data, attribute + 4)[0])
            attribute += max(4, (length + 3) & ~3)
        at += (size + 3) & ~3
    return bool(data)
