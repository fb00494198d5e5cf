"""For whom real processes wait, by the kernel's word."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from jobspec.runtime.stalls import holders, proc_facts

Start = Callable[[str], "tuple[int, int]"]


@pytest.fixture
def fork() -> Iterator[Start]:
    """Start a program that forks; (its pid, the child's), both once they wait."""
    running: list[subprocess.Popen[str]] = []

    def begin(text: str) -> tuple[int, int]:
        process = subprocess.Popen([sys.executable, "-c", text], stdout=subprocess.PIPE, text=True)
        running.append(process)
        assert process.stdout is not None
        child = int(process.stdout.readline())
        end = time.monotonic() + 10.0
        while not (_waits(process.pid) and _waits(child)) and time.monotonic() < end:
            time.sleep(0.02)
        return process.pid, child

    yield begin
    for process in running:
        subprocess.run(["pkill", "-KILL", "-P", str(process.pid)], check=False)
        process.kill()
        process.communicate()


def _waits(pid: int) -> bool:
    networks = proc_facts.Networks()
    known = [proc_facts.gather(pid, networks).get("calls", {}).get(str(pid), "") for _ in range(3)]
    return len(set(known)) == 1 and known[0] not in ("", "running")


def told(*pids: int) -> dict[int, dict[str, Any]]:
    """pid -> (what its main thread does, for whom it waits)."""
    networks = proc_facts.Networks()
    known = {pid: proc_facts.gather(pid, networks) for pid in pids}
    holders.tell(known)
    assert not any("ends" in facts for facts in known.values())
    return known


def behind(facts: dict[str, Any], pid: int) -> list[int] | None:
    rows = facts.get("behind", {}).get(str(pid))
    return None if rows is None else [row[0] for row in rows]


BEGIN = "import fcntl, os, socket, sqlite3, subprocess, sys, time\n"
FORK = "child = os.fork()\nif child:\n    print(child, flush=True)\n"


def test_the_other_end_of_a_pipe_and_the_child(fork: Start) -> None:
    text = f"{BEGIN}read, write = os.pipe()\n{FORK}    os.wait()\n"
    parent, child = fork(f"{text}else:\n    os.close(write)\n    os.read(read, 1)\n")
    known = told(parent, child)
    assert known[child]["calls"][str(child)] == "read on pipe"
    assert behind(known[child], child) == [parent]
    assert "own_ends" not in known[child]
    assert known[parent]["behind"][str(parent)] == [[child, known[child]["command"][:60], "read on pipe"]]


@pytest.mark.parametrize(("call", "both"), [("os.waitpid(child, 0)", False), ("os.wait()", True)])
def test_one_child_of_several(fork: Start, call: str, both: bool) -> None:
    text = (
        f"{BEGIN}other = os.fork()\nif not other:\n    time.sleep(60)\n{FORK}    print(other, flush=True)\n"
    )
    parent, child = fork(f"{text}    {call}\nelse:\n    time.sleep(60)\n")
    (other,) = {int(pid) for pid in Path(f"/proc/{parent}/task/{parent}/children").read_text().split()} - {
        child
    }
    known = told(parent, child, other)
    assert behind(known[parent], parent) == (sorted([child, other]) if both else [child])


def test_a_pipe_of_which_nobody_else_has_the_other_end(fork: Start) -> None:
    text = f"{BEGIN}{FORK}    time.sleep(60)\nelse:\n"
    _, child = fork(f"{text}    read, write = os.pipe()\n    os.read(read, 1)\n")
    known = told(child)
    assert (behind(known[child], child), known[child]["own_ends"]) == ([], [str(child)])


def test_a_full_pipe_waits_for_its_reader(fork: Start) -> None:
    text = f"{BEGIN}read, write = os.pipe()\n{FORK}    os.close(write)\n    time.sleep(60)\n"
    parent, child = fork(f"{text}else:\n    os.close(read)\n    os.write(write, bytes(1 << 20))\n")
    assert behind(told(parent, child)[child], child) == [parent]


def test_the_other_end_of_a_pair_of_sockets(fork: Start) -> None:
    text = f"{BEGIN}one, two = socket.socketpair()\n{FORK}    two.close()\n    one.recv(1)\n"
    parent, child = fork(f"{text}else:\n    one.close()\n    two.recv(1)\n")
    known = told(parent, child)
    assert known[child]["calls"][str(child)] == "recvfrom on socket"
    assert (behind(known[child], child), behind(known[parent], parent)) == ([parent], [child])


def test_a_fork_that_was_only_left_the_other_end(fork: Start) -> None:
    """It waits at a pair of its own; and where nobody else has the end, nobody can write to it."""
    text = f"{BEGIN}one, two = socket.socketpair()\nthree, four = socket.socketpair()\n{FORK}"
    text += "    two.close()\n    four.close()\n    one.recv(1)\n"
    parent, child = fork(f"{text}else:\n    one.close()\n    three.close()\n    four.recv(1)\n")
    row = told(parent, child)[parent]["behind"][str(parent)][0]
    assert row[0] == child
    assert row[2] == "recvfrom on another socket"
    _, child = fork(
        f"{BEGIN}{FORK}    time.sleep(60)\nelse:\n    one, two = socket.socketpair()\n    one.recv(1)\n"
    )
    assert behind(told(child)[child], child) == []


def test_a_poll_at_pipes_that_it_only_reads(fork: Start) -> None:
    """As `subprocess.communicate` does: whoever still has them open for writing keeps it waiting."""
    text = f"{BEGIN}import select\nread, write = os.pipe()\n{FORK}    os.close(write)\n"
    text += "    select.select([read], [], [])\n"
    parent, child = fork(f"{text}else:\n    time.sleep(60)\n")
    assert behind(told(parent, child)[parent], parent) == [child]


def test_the_holder_of_a_lock_on_a_file(fork: Start, tmp_path: Path) -> None:
    lock = f"fcntl.flock(open({str(tmp_path / 'lock')!r}, 'w'), fcntl.LOCK_EX)"
    text = f"{BEGIN}file = open({str(tmp_path / 'lock')!r}, 'w')\nfcntl.flock(file, fcntl.LOCK_EX)\n{FORK}"
    parent, child = fork(f"{text}    time.sleep(60)\nelse:\n    file.close()\n    {lock}\n")
    assert behind(told(parent, child)[child], child) == [parent]


def test_the_lock_file_of_a_build_as_its_builder_has_it_open(fork: Start, tmp_path: Path) -> None:
    lock, other = (str(tmp_path / name) for name in ("lock", "other"))
    text = f"{BEGIN}{FORK}    file = os.open({lock!r}, os.O_CREAT | os.O_EXCL)\n    time.sleep(60)\n"
    text += f"else:\n    file = os.open({other!r}, os.O_CREAT)\n    time.sleep(60)\n"
    parent, child = fork(text)
    known = told(parent, child)
    assert (known[parent].get("batons"), known[child].get("batons")) == ([lock], None)


def test_who_has_locked_the_database_that_it_tries_again_and_again(fork: Start, tmp_path: Path) -> None:
    path = str(tmp_path / "x.db")
    text = f"{BEGIN}\ndef use():\n    made = sqlite3.connect({path!r}, timeout=60, isolation_level=None)\n"
    text += "    made.execute('CREATE TABLE IF NOT EXISTS t (x)')\n    made.execute('BEGIN IMMEDIATE')\n"
    parent, child = fork(
        f"{text}    return made\nread, write = os.pipe()\n{FORK}    kept = use()\n    os.write(write, b'x')\n"
        "    time.sleep(60)\nelse:\n    os.read(read, 1)\n    use()\n"
    )
    end, known = time.monotonic() + 10.0, told(parent, child)
    while behind(known[child], child) in (None, []) and time.monotonic() < end:  # between two of its naps
        time.sleep(0.05)
        known = told(parent, child)
    assert behind(known[child], child) == [parent]
    assert behind(known[parent], parent) is None


def test_the_program_at_a_pseudo_terminal(fork: Start) -> None:
    text = f"{BEGIN}import pty\npid, fd = pty.fork()\nif not pid:\n    time.sleep(60)\n"
    parent, child = fork(f"{text}print(pid, flush=True)\nos.read(fd, 1)\n")
    assert behind(told(parent, child)[parent], parent) == [child]


def test_programs_that_wait_for_each_other_are_no_python(fork: Start) -> None:
    text = f"{BEGIN}one = subprocess.Popen(['sleep', '60'], stdout=subprocess.PIPE)\n"
    text += "two = subprocess.Popen(['cat'], stdin=one.stdout, stdout=subprocess.PIPE)\n"
    parent, cat = fork(f"{text}print(two.pid, flush=True)\ntwo.stdout.read()\n")
    children = Path(f"/proc/{parent}/task/{parent}/children").read_text().split()
    known = told(parent, *map(int, children))
    sleeper = next(int(pid) for pid in children if int(pid) != cat)
    further = [[sleeper, "sleep 60", "clock_nanosleep"]]
    assert known[parent]["behind"][str(parent)] == [[cat, "cat", "read on pipe", further]]


def test_the_address_that_udp_waits_for(fork: Start) -> None:
    text = (
        f"{BEGIN}server = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)\nserver.bind(('127.0.0.1', 0))\n"
    )
    text += (
        "client = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)\nclient.connect(server.getsockname())\n"
    )
    _, child = fork(f"{text}{FORK}    time.sleep(60)\nelse:\n    client.recv(1)\n")
    facts = told(child)[child]
    (row,) = facts["sockets"]  # the server's socket is not connected
    assert facts["calls"][str(child)] == f"recvfrom on socket {row[0]} -> {row[1]} UDP"
    assert row[1].startswith("127.0.0.1:")


def test_a_loop_waits_for_programs_at_its_pipes_and_by_descriptors(fork: Start) -> None:
    """As asyncio does: an epoll, pipes to a program, and (from Python 3.12 on) a descriptor of a child."""
    text = f"{BEGIN}import select\nloop = select.epoll()\n"
    text += "cat = subprocess.Popen(['cat'], stdin=subprocess.PIPE, stdout=subprocess.PIPE)\n"
    text += "plain = subprocess.Popen(['sleep', '60'])\nawaited = subprocess.Popen(['sleep', '61'])\n"
    text += "kept = os.pidfd_open(awaited.pid)\nprint(cat.pid, flush=True)\nloop.poll()\n"
    parent, cat = fork(text)
    children = [int(pid) for pid in Path(f"/proc/{parent}/task/{parent}/children").read_text().split()]
    known = told(parent, *children)
    awaited = next(pid for pid in children if known[pid]["command"] == "sleep 61")
    assert behind(known[parent], parent) == sorted([cat, awaited])


def test_who_has_locked_a_file_that_is_tried_again_and_again(fork: Start, tmp_path: Path) -> None:
    """As `filelock` does, which has the file open only while it tries."""
    path = str(tmp_path / "hub.lock")
    text = f"{BEGIN}file = open({path!r}, 'w')\nfcntl.flock(file, fcntl.LOCK_EX)\n{FORK}    time.sleep(60)\n"
    parent, child = fork(f"{text}else:\n    file.close()\n    time.sleep(60)\n")
    known = told(parent, child)
    assert (known[parent].get("locked"), known[child].get("locked")) == ([path], None)


def test_a_locked_file_is_held_by_whoever_has_it_open(fork: Start, tmp_path: Path) -> None:
    """`/proc/locks` names who took the lock, here the parent; a fork has left the file to the child."""
    programs = []
    for path in (str(tmp_path / "left.lock"), str(tmp_path / "shared.lock")):
        begin = f"{BEGIN}file = open({path!r}, 'w')\nfcntl.flock(file, fcntl.LOCK_EX)\n{FORK}"
        again = f"    other = open({path!r}, 'w')\n    fcntl.flock(other, fcntl.LOCK_EX)\n"
        programs.append((begin, f"{again}else:\n    time.sleep(60)\n"))
    (begin, again), shared = programs
    parent, child = fork(f"{begin}    file.close()\n{again}")
    assert behind(told(parent, child)[parent], parent) == [child]
    assert behind(told(parent)[parent], parent) is None
    parent, child = fork("".join(shared))
    assert behind(told(parent, child)[parent], parent) == sorted([parent, child])
    assert behind(told(parent)[parent], parent) == [parent]
