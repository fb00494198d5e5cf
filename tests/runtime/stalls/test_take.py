"""Stacks of real processes: by py-spy, and by the signal that the hook has registered for."""

from __future__ import annotations

import ast
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from jobspec.rendering.run_folder import build_runtime
from jobspec.runtime.stalls import explain, proc_facts, stacks, take
from jobspec.runtime.stalls.cohorts import View
from jobspec.runtime.stalls.explanation import Explanation

PY_SPY = shutil.which("py-spy", path=f"{Path(sys.executable).parent}:{os.environ['PATH']}") or ""
Start = Callable[..., "subprocess.Popen[str]"]

DEADLOCK = """
import threading, time
a, b = threading.Lock(), threading.Lock()
def one():
    with a:
        time.sleep(0.2)
        with b:
            pass
def two():
    with b:
        time.sleep(0.2)
        with a:
            pass
threads = [threading.Thread(target=one, daemon=True), threading.Thread(target=two, daemon=True)]
[thread.start() for thread in threads]
time.sleep(0.5)
print("there", flush=True)
[thread.join() for thread in threads]
"""


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """Start a program of the given text with the hook on its path, and wait for its first line."""
    pyz = tmp_path / "runtime.pyz"
    pyz.write_bytes(build_runtime())
    running: list[subprocess.Popen[str]] = []

    def begin(
        text: str, *, hook: bool = True, path: str = "", words: Sequence[str] = ()
    ) -> subprocess.Popen[str]:
        program = tmp_path / "program.py"
        program.write_text(text)
        env = {**os.environ, "PYTHONPATH": os.pathsep.join([str(pyz), *([path] if path else [])])}
        env |= {"JOBSPEC_SCRATCH": str(tmp_path)} if hook else {"PYTHONPATH": ""}
        argv = [sys.executable, str(program), *words]
        process = subprocess.Popen(argv, env=env, stdout=subprocess.PIPE, text=True, start_new_session=True)
        running.append(process)
        assert process.stdout is not None
        assert process.stdout.readline() == "there\n"
        end = time.monotonic() + 5.0
        while proc_facts.stat(process.pid)[0] == "R" and time.monotonic() < end:
            time.sleep(0.02)  # until it waits
        return process

    yield begin
    for process in running:  # with what it has forked, which holds the pipe open, too
        os.killpg(process.pid, signal.SIGKILL)
        process.communicate()


def children(process: subprocess.Popen[str]) -> list[int]:
    return list(map(int, Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()))


def explained(pids: Sequence[int], py_spy: str = PY_SPY) -> Explanation:
    return explain.explain(View(stacks.read(take.take(pids, "n1", py_spy).text)))


@pytest.mark.parametrize("py_spy", [PY_SPY, ""], ids=["py-spy", "signal"])
def test_a_deadlock_of_two_locks(start: Start, py_spy: str) -> None:
    process = start(DEADLOCK)
    taken = take.take([process.pid], "n1", py_spy)
    assert taken.notes == (() if py_spy else ("py-spy is not in the image; by faulthandler instead (1x)",))
    found = explain.explain(View(stacks.read(taken.text)))
    assert (found.kind, found.blocked, found.inferred) == ("lock", False, True)
    assert "waits for `b` at one" in found.what or "waits for `a` at two" in found.what
    assert process.poll() is None


def test_a_process_without_the_hook_gets_no_signal(start: Start) -> None:
    process = start("import time\nprint('there', flush=True)\ntime.sleep(60)\n", hook=False)
    taken = take.take([process.pid], "n1", "")
    assert taken.notes == (
        "py-spy is not in the image; and it has not registered faulthandler: no stack (1x)",
    )
    time.sleep(0.2)
    assert process.poll() is None


def test_a_forked_child_answers_for_itself(start: Start) -> None:
    text = "import os, time\ndef child():\n    time.sleep(60)\npid = os.fork()\nif not pid:\n    child()\n"
    process = start(text + "print('there', flush=True)\ntime.sleep(60)\n")
    taken = take.take([process.pid, *children(process)], "n1", "")
    parent, child = stacks.read(taken.text)
    assert [frame.function for frame in child.threads[0].frames] == ["child", "<module>"]
    assert [frame.function for frame in parent.threads[0].frames] == ["<module>"]


def test_the_hidden_sitecustomize_is_run(start: Start, tmp_path: Path) -> None:
    (tmp_path / "image").mkdir()
    (tmp_path / "image" / "sitecustomize.py").write_text("WORD = 'there'\n")
    text = "import sitecustomize, time\nprint(sitecustomize.WORD, flush=True)\ntime.sleep(60)\n"
    process = start(text, path=str(tmp_path / "image"))
    assert 'program.py", line ' in take.by_signal(process.pid)  # 2 or 3: it may still be in its print


def test_a_stopped_process_and_a_fifo(start: Start, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo")
    text = f"import os\nfd = os.open({str(tmp_path / 'fifo')!r}, os.O_RDWR)\n"
    text += "print('there', flush=True)\nos.read(fd, 1)\n"
    process = start(text)
    time.sleep(0.3)
    found = explained([process.pid])
    assert (found.kind, found.blocked) == ("pipe", True)
    assert f"waits at a pipe or a FIFO on {tmp_path / 'fifo'}" in found.what
    os.kill(process.pid, 19)
    time.sleep(0.2)
    found = explained([process.pid])
    assert (found.kind, found.inferred) == ("stopped", False)
    os.kill(process.pid, 18)


def test_words_of_a_command_that_look_like_secrets(start: Start) -> None:
    """In the command line, and in the line of the program; both also where py-spy tells them."""
    words = ["--api_key=hunter21", "--token", "hunter22", '{"api_key": "hunter23"}', "http://me:hunter24@h/"]
    words += ["Authorization: Bearer hunter25", "--steps", "7"]
    text = "import time\nprint('there', flush=True)\ndef f(n, api_key): time.sleep(n)\n"
    process = start(text + "f(60, api_key='hunter26')\n", words=words)
    for py_spy in {PY_SPY, ""}:
        told = take.take([process.pid], "n1", py_spy).text
        assert "f(60, api_key='***')" in told
        assert "--steps 7" in told
        assert "hunter" not in told
    assert "hunter" not in proc_facts.hide(" ".join(words))


def test_a_secret_at_the_end_of_what_is_kept_of_a_command(start: Start, tmp_path: Path) -> None:
    before = len(f"{sys.executable} {tmp_path}/program.py  http://me:hunt")
    words = ["x" * (proc_facts.COMMAND_CHARS - before), "http://me:hunter27@h/"]
    process = start("import time\nprint('there', flush=True)\ntime.sleep(60)\n", words=words)
    told = proc_facts.command(process.pid)
    assert (len(told), told[-7:]) == (proc_facts.COMMAND_CHARS, "me:***@")


def test_a_node_with_more_processes_than_time(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    process = start("import time\nprint('there', flush=True)\ntime.sleep(60)\n")
    monkeypatch.setattr(take, "TAKE_S", 0.0)
    taken = take.take([process.pid], "n1", PY_SPY)
    assert taken.notes == ("no stack: 0 s were over before its turn (1x)",)
    (read,) = stacks.read(taken.text)
    assert (read.pid, read.threads, read.state) == (process.pid, (), "S")


LOOP = """import asyncio, functools
async def ask(number):
    await (asyncio.Event().wait() if number == 5 else asyncio.sleep(0))
class Behind:  # as C code awaits a coroutine
    def __init__(self, coroutine):
        self.coroutine = coroutine
    def __await__(self):
        return self.coroutine.__await__()
async def episode(number):
    await Behind(ask(number))
async def every():
    await asyncio.gather(*map(episode, range(8)))
async def main():
    asyncio.get_running_loop().call_later(0.3, functools.partial(print, "there", flush=True))
    await every()
asyncio.run(main())
"""


@pytest.mark.parametrize("py_spy", [PY_SPY, ""], ids=["py-spy", "signal"])
def test_the_coroutine_that_a_loop_waits_for(start: Start, py_spy: str) -> None:
    """Of nine tasks two wait for others; the one that waits for an event is named."""
    process = start(LOOP)
    found = explained([process.pid], py_spy)
    assert found.frame is not None
    assert (found.kind, found.frame.function, found.frame.line) == ("event-loop", "ask", 3)
    assert process.poll() is None


def test_a_child_whose_queue_nobody_empties(start: Start) -> None:
    text = "import multiprocessing as m\ndef put(q):\n    q.put(bytes(8 << 20))\n"
    text += "def main():\n    q = m.get_context('fork').Queue()\n"
    text += "    p = m.get_context('fork').Process(target=put, args=(q,))\n"
    text += "    print('there', flush=True)\n    p.start()\n    p.join()\nmain()\n"
    process = start(text)
    time.sleep(1.0)
    (child,) = children(process)
    found = explained([process.pid, child])
    assert (found.kind, found.blocked) == ("queue", False)
    said = f"pid {child} on `n1` waits at its end for the thread that puts the rest of its multiprocessing"
    assert said in found.what
    assert f"while pid {process.pid} on `n1` waits for a process that it has started at main" in found.what


def test_a_fork_whose_parent_has_ended_is_no_rank(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RANK", "1")
    monkeypatch.setenv("WORLD_SIZE", "2")
    text = "import os, time\nread, write = os.pipe()\nif not os.fork():\n    if not os.fork():\n"
    text += "        os.write(write, str(os.getpid()).encode())\n        time.sleep(60)\n    os._exit(0)\n"
    process = start(
        text
        + "os.wait()\nprint('there', flush=True)\nprint(int(os.read(read, 9)), flush=True)\ntime.sleep(60)\n"
    )
    assert process.stdout is not None
    orphan = int(process.stdout.readline())
    found = stacks.read(take.take([orphan, process.pid], "n1", PY_SPY).text)
    assert {one.pid: (one.rank, one.facts.get("of_rank")) for one in found} == {
        process.pid: ("1", None),
        orphan: ("", "1"),
    }


def test_who_only_accepts_is_the_other_end(start: Start) -> None:
    text = "import socket, threading, os\ns = socket.create_server(('127.0.0.1', 0))\n"
    text += "def serve():\n    kept = []\n    while True:\n        kept.append(s.accept())\n"
    text += "def ask():\n    c = socket.create_connection(s.getsockname())\n    c.recv(1)\n"
    text += "print('there', flush=True)\nask() if os.fork() else serve()\n"
    process = start(text)
    time.sleep(0.5)
    (child,) = children(process)
    found = explained([process.pid, child])
    assert (found.kind, [one.pid for one in found.named]) == ("network", [process.pid])
    assert f"; the other end is pid {child} on `n1`, which waits for a connection at serve" in found.what


def test_the_hook_has_the_grammar_of_old_pythons() -> None:
    """A tool of the run may be of an older one: it says each time that it cannot read `sitecustomize`."""
    text = Path(str(take.__file__)).with_name("hook.py").read_text()
    ast.parse(text, feature_version=(3, 6))


def test_a_launcher_is_no_rank_and_its_ranks_are(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    """On the second of two nodes jobspec says rank 1 of 2; torchrun says rank 1 of 4 to its worker."""
    monkeypatch.setenv("RANK", "1")
    monkeypatch.setenv("WORLD_SIZE", "2")
    text = "import os, subprocess, sys, time\n"
    text += "if len(sys.argv) > 1:\n    code = 'import time; time.sleep(60)'\n"
    text += "    subprocess.Popen([sys.executable, '-c', code], env={**os.environ, 'WORLD_SIZE': '4'})\n"
    text += "    time.sleep(0.5)\nprint('there', flush=True)\ntime.sleep(60)\n"
    process = start(text, words=["-m torch.distributed.run train.py"])
    (worker,) = children(process)
    found = stacks.read(take.take([process.pid, worker], "n1", PY_SPY).text)
    assert {one.pid: (one.rank, bool(one.facts.get("service"))) for one in found} == {
        process.pid: ("", True),
        worker: ("1", False),
    }
    alone = stacks.read(take.take([process.pid], "n1", PY_SPY).text)
    assert [bool(one.facts.get("service")) for one in alone] == [False]


def test_a_program_that_a_rank_has_left_behind_is_no_rank() -> None:
    """Its parent is whoever takes orphans; ranks in a step of their own have none that is known."""
    train, server = {"command": "python train.py", "world": "3"}, {"command": "python -c serve", "world": "3"}
    known: dict[int, dict[str, Any]] = {
        10: {**train, "rank": "0", "parent": os.getpid()},
        11: {**server, "rank": "2", "parent": 1},
    }
    take._own_ranks(known)
    assert (known[10]["rank"], known[11]) == ("0", {**server, "of_rank": "2", "parent": 1})
    known = {pid: {**train, "command": f"python {pid}.py", "rank": str(pid), "parent": 1} for pid in (0, 1)}
    take._own_ranks(known)
    assert [known[pid]["rank"] for pid in known] == ["0", "1"]
