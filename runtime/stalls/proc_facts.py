"""What /proc tells of a process without any right over it: state, system calls, sockets, CPU time.

`cmdline` and `environ` of a process in state D are never read: they may hang the reader. Sources: proc(5),
arch/x86/entry/syscalls/syscall_64.tbl and include/uapi/asm-generic/unistd.h.
"""

from __future__ import annotations

import contextlib
import os
import platform
import re
import socket
import struct
import time
from pathlib import Path
from typing import Any, Dict, Iterable, Iterator, List, Mapping, Tuple

TICKS = os.sysconf("SC_CLK_TCK")
MAX_FDS, MAX_SOCKETS, MAX_THREADS, MAX_BATONS = 4096, 48, 64, 4
COMMAND_CHARS = 300
_X86 = {
    0: "read", 1: "write", 2: "open", 7: "poll", 17: "pread64", 18: "pwrite64", 19: "readv",
    23: "select", 34: "pause", 35: "nanosleep", 128: "rt_sigtimedwait", 130: "rt_sigsuspend",
    42: "connect", 43: "accept", 44: "sendto", 45: "recvfrom", 46: "sendmsg", 47: "recvmsg", 61: "wait4",
    72: "fcntl", 73: "flock", 74: "fsync", 75: "fdatasync", 202: "futex",
    230: "clock_nanosleep", 232: "epoll_wait",
    247: "waitid", 257: "openat", 270: "pselect6", 271: "ppoll", 281: "epoll_pwait", 288: "accept4",
}  # fmt: skip
_ARM = {
    22: "epoll_pwait", 25: "fcntl", 32: "flock", 56: "openat", 63: "read", 64: "write", 65: "readv",
    67: "pread64", 68: "pwrite64",
    72: "pselect6", 73: "ppoll", 82: "fsync", 83: "fdatasync", 95: "waitid", 98: "futex", 101: "nanosleep",
    115: "clock_nanosleep", 202: "accept", 203: "connect", 206: "sendto", 207: "recvfrom", 211: "sendmsg",
    133: "rt_sigsuspend", 137: "rt_sigtimedwait", 212: "recvmsg", 242: "accept4", 260: "wait4",
}  # fmt: skip
_CALLS = {"x86_64": _X86, "aarch64": _ARM}.get(platform.machine(), {})
_ON_FD = frozenset(
    ("read", "write", "readv", "sendto", "recvfrom", "sendmsg", "recvmsg", "connect", "accept", "accept4",
     "flock", "fcntl", "fsync", "fdatasync", "pread64", "pwrite64")
)  # fmt: skip
# Where the kernel waits for a file system's server -> that file system. Sources: Linux's fs/fuse/dev.c,
# net/sunrpc/sched.c, fs/nfs, fs/ceph/mds_client.c; Lustre's ptlrpc and llite.
_FILE_SYSTEMS = (
    ("request_wait_answer", "FUSE"), ("fuse_", "FUSE"), ("rpc_wait_bit", "NFS"), ("nfs", "NFS"),
    ("ptlrpc_", "Lustre"), ("ldlm_", "Lustre"), ("cl_sync_io", "Lustre"), ("ll_", "Lustre"),
    ("ceph_", "Ceph"),
)  # fmt: skip
_GPUS = ("/dev/nvidia", "/dev/kfd")
_STATES = {"01": "ESTABLISHED", "02": "SYN_SENT", "08": "CLOSE_WAIT", "0A": "LISTEN"}
# `identity.recorder_variables`; a replaced one ends in ` (deleted)`
_PIPE = re.compile(r"/ask_rank_(\d+)\.pipe$")
_SECRET = re.compile(
    r"""(?i)((?:key|token|password|passwd|secret)\w*["']?[= :]+["']?|\bbearer +)[^\s"']+"""
    r"|(://[^/\s:@]*:)[^/\s@]+(?=@)"
)
_WORLD = {"RANK": "rank", "WORLD_SIZE": "world"}
RETRANSMITS = "01"  # the timer that runs; include/net/tcp.h
Sockets = Dict[str, Tuple[str, str, str, int, int, int]]


def stat(pid: int) -> Tuple[str, int, float]:
    """(state, parent, CPU seconds). Raises: OSError, IndexError, ValueError for one that is gone."""
    fields = _stat(pid)
    return fields[0].decode(), int(fields[1]), (int(fields[11]) + int(fields[12])) / TICKS


def _stat(pid: int) -> List[bytes]:
    """The fields of proc(5) from the third on."""
    return Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()


def is_python(pid: int) -> bool:
    return Path(link(f"/proc/{pid}/exe")).name.startswith("python")


def gather(pid: int, networks: Networks) -> Dict[str, Any]:
    """All that is told of one process; empty when it is gone."""
    try:
        state, parent, cpu = stat(pid)
        began = int(_stat(pid)[19])
    except (OSError, IndexError, ValueError):
        return {}
    facts: Dict[str, Any] = {
        "state": state,
        "parent": parent,
        "cpu_s": cpu,
        "time": time.time(),
        "began": began,
    }
    facts["wchan"] = text(f"/proc/{pid}/wchan")
    stuck = [name for name in _threads(pid) if _thread_state(pid, name) == "D"]
    if state != "D" and str(pid) not in stuck:  # these files hang with such a process
        if not stuck:
            facts["command"] = command(pid)
            facts.update(_ranks(pid))
        descriptors, sockets = dict(_descriptors(pid)), networks.of(pid)
        facts["sockets"] = [
            list(sockets[inode]) for inode in _socket_inodes(descriptors) if inode in sockets
        ][:MAX_SOCKETS]
        asked = [found[1] for target in descriptors.values() if (found := _PIPE.search(target))]
        if asked:
            facts["nccl_rank"] = asked[0]
        if batons := _batons(pid, descriptors):
            facts["batons"] = batons
        if any(target.startswith(_GPUS) for target in descriptors.values()):
            facts["gpu"] = True
        facts["ends"] = _ends(pid, descriptors, sockets)
        facts["calls"] = {
            name: call for name in _threads(pid) if (call := _call(pid, name, descriptors, sockets))
        }
    if stuck:
        facts["stuck"] = stuck
    return facts


def command(pid: int) -> str:
    words = _bytes(f"/proc/{pid}/cmdline").replace(b"\0", b" ").decode("utf-8", "replace").strip()
    return hide(words[: 16 * COMMAND_CHARS])[:COMMAND_CHARS]  # a half of a secret does not look like one


def hide(words: str) -> str:
    """A command line without what looks like a secret: its values are not those that the redactor knows."""
    return _SECRET.sub(r"\1\2***", words)


def _ranks(pid: int) -> Dict[str, str]:
    pairs = (item.partition(b"=") for item in _bytes(f"/proc/{pid}/environ").split(b"\0"))
    found = {_WORLD[key]: value.decode("ascii", "replace") for name, _, value in pairs
             if (key := name.decode("ascii", "replace")) in _WORLD}  # fmt: skip
    return found if found.get("rank", "").isdecimal() else {}


def _threads(pid: int) -> List[str]:
    return sorted(names(f"/proc/{pid}/task"), key=int)[:MAX_THREADS]


def _thread_state(pid: int, thread: str) -> str:
    fields = _bytes(f"/proc/{pid}/task/{thread}/stat").rpartition(b")")[2].split()
    return fields[0].decode() if fields else ""


def _call(pid: int, thread: str, descriptors: Dict[int, str], sockets: Sockets) -> str:
    """`read on FIFO /x`, `futex`, `running`; empty without the right to see it."""
    words = text(f"/proc/{pid}/task/{thread}/syscall").split()
    if not words or words[0] == "running":
        return words[0] if words else ""
    name = _CALLS.get(int(words[0]), "") if words[0].lstrip("-").isdecimal() else ""
    where = text(f"/proc/{pid}/task/{thread}/wchan")
    if name not in _ON_FD and (
        kind := next((kind for mark, kind in _FILE_SYSTEMS if where.startswith(mark)), "")
    ):
        return f"{name or 'call'} in {where} of {kind}"
    if where in ("wait_for_partner", "fifo_open"):
        return "open of FIFO"
    if name in ("wait4", "waitid") and len(words) > 2:
        child = int(words[1 + (name == "waitid")], 16)
        return f"{name} of {child}" if 0 < child < 1 << 31 else name
    if name not in _ON_FD or len(words) < 2:
        return name
    target = descriptors.get(int(words[1], 16), "")
    if target.startswith("socket:["):
        row = sockets.get(target[8:-1])
        return f"{name} on " + (f"socket {row[0]} -> {row[1]} {row[2]}" if row else target)
    if target.startswith("pipe:[") or "pipe" in where:
        return f"{name} on {'' if target.startswith('pipe:[') else 'FIFO '}{target}"
    return f"{name} on {target}{_file_system(pid, target)}" if target else name


def _file_system(pid: int, path: str) -> str:
    """` of fuse.sshfs`: the file system of the path, by the longest mount point; no file is touched."""
    best, kind = "", ""
    for line in text(f"/proc/{pid}/mountinfo").splitlines() if path.startswith("/") else ():
        left, _, right = line.partition(" - ")
        point = left.split()[4]
        if (path + "/").startswith(point.rstrip("/") + "/") and len(point) >= len(best):
            best, kind = point, right.split()[0]
    return f" of {kind}" if kind else ""


def _descriptors(pid: int) -> Iterator[Tuple[int, str]]:
    for name in names(f"/proc/{pid}/fd")[:MAX_FDS]:
        yield int(name), link(f"/proc/{pid}/fd/{name}")


def _ends(pid: int, descriptors: Mapping[int, str], sockets: Sockets) -> Dict[str, str]:
    """The pipes and the sockets of no network that it has open: each with `r`, `w`, and 0 for its input."""
    found: Dict[str, str] = {}
    for number, target in descriptors.items():
        if target.startswith("pipe:[") or (target.startswith("socket:[") and target[8:-1] not in sockets):
            letters = _mode(pid, number) + ("" if number else "0")
            found[target] = "".join(sorted({*found.get(target, ""), *letters}))
    return found


def _batons(pid: int, descriptors: Mapping[int, str]) -> List[str]:
    """The lock files of builds that it has open, as torch's FileBaton creates them: `lock`, for reading."""
    return [
        target for number, target in descriptors.items()
        if target.endswith("/lock") and _mode(pid, number) == "r"
    ][:MAX_BATONS]  # fmt: skip


def _mode(pid: int, number: int) -> str:
    """`r`, `w` or `rw`, as the file is open; empty when it is gone."""
    with contextlib.suppress(OSError):
        mode = os.lstat(f"/proc/{pid}/fd/{number}").st_mode  # of the link itself
        return ("r" if mode & 0o400 else "") + ("w" if mode & 0o200 else "")
    return ""


def _socket_inodes(descriptors: Dict[int, str]) -> List[str]:
    return [target[8:-1] for target in descriptors.values() if target.startswith("socket:[")]


class Networks:
    """The sockets of each network namespace, read once: a container may have one of its own."""

    def __init__(self) -> None:
        self._tables: Dict[str, Sockets] = {}

    def of(self, pid: int) -> Sockets:
        name = link(f"/proc/{pid}/ns/net")
        if name not in self._tables:
            self._tables[name] = socket_table(pid)
        return self._tables[name]


def listens(pids: Iterable[int], port: int) -> bool:
    """Whether one of the processes listens on the port."""
    networks = Networks()
    for pid in pids:
        with contextlib.suppress(OSError, IndexError, ValueError):
            inodes = _socket_inodes(dict(_descriptors(pid))) if stat(pid)[0] != "D" else []
            rows = (networks.of(pid).get(inode) for inode in inodes)
            if any(row and row[2] == "LISTEN" and row[0].endswith(f":{port}") for row in rows):
                return True
    return False


def socket_table(pid: int) -> Sockets:
    """inode -> (own address, the other's, state, bytes that its host has not acknowledged, bytes not yet
    read, how often those were sent again)."""
    table: Sockets = {}
    for family in ("tcp", "tcp6", "udp", "udp6"):
        for line in text(f"/proc/{pid}/net/{family}").splitlines()[1:]:
            fields = line.split()
            udp = family.startswith("udp")
            if len(fields) > 9 and (not udp or fields[3] == "01"):  # of UDP those that are connected
                sent, received = (int(part, 16) for part in fields[4].split(":"))
                state = "UDP" if udp else _STATES.get(fields[3], fields[3])
                far = "" if state == "LISTEN" else _address(fields[2])
                again = int(fields[6], 16) if fields[5].startswith(RETRANSMITS) else 0
                table[fields[9]] = (_address(fields[1]), far, state, sent, received, again)
    return table


def _address(text: str) -> str:
    digits, _, port = text.partition(":")
    words = [int(digits[at : at + 8], 16) for at in range(0, len(digits), 8)]
    data = struct.pack(f"={len(words)}I", *words)
    if len(data) == 16 and data[:12] == b"\0" * 10 + b"\xff\xff":
        data = data[12:]
    name = socket.inet_ntop(socket.AF_INET if len(data) == 4 else socket.AF_INET6, data)
    return f"{name}:{int(port, 16)}"


def names(folder: str) -> List[str]:
    """The entries of a folder of /proc; none of a process that is gone."""
    with contextlib.suppress(OSError):
        return os.listdir(folder)  # noqa: PTH208
    return []


def text(path: str) -> str:
    return _bytes(path).decode("utf-8", "replace")


def _bytes(path: str) -> bytes:
    with contextlib.suppress(OSError):
        return Path(path).read_bytes()
    return b""


def link(path: str) -> str:
    with contextlib.suppress(OSError):
        return os.readlink(path)  # noqa: PTH115
    return ""
