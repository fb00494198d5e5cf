"""Stacks as text. The files of `fixtures/stalls` are of real processes: torch 2.13, gloo, four ranks."""

from __future__ import annotations

from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from jobspec.runtime.stalls import source, stacks
from jobspec.runtime.stalls.stacks import Frame, Process, Thread

DUMPS = Path(__file__).parents[2] / "fixtures" / "stalls"


def read(name: str) -> list[Process]:
    return stacks.read((DUMPS / name).read_text(), name)


def test_py_spy() -> None:
    (process,) = read("absent/stacks-rank2.txt")
    assert (process.rank, process.command) == ("2", "python /home/u/run/rank.py absent out/absent")
    assert process.main is not None
    assert [str(frame) for frame in process.main.frames] == [
        "evaluate (rank.py:14)", "step (rank.py:17)", "train (rank.py:22)", "<module> (rank.py:23)"
    ]  # fmt: skip
    assert process.main.busy is False


def test_faulthandler_prints_the_main_thread_last() -> None:
    (process,) = read("absent_faulthandler/rank0.txt")
    assert len(process.threads) == 2
    assert process.main is not None
    assert process.main.frames[2] == Frame("step", "/home/u/run/rank.py", 20)


def test_gdb() -> None:
    (process,) = read("gdb-rank0.txt")
    names = [frame.function for thread in process.threads for frame in thread.frames]
    assert len(process.threads) == 7
    assert "c10d::ProcessGroupGloo::runLoop" in names


def test_labels_of_srun_tell_ranks_apart() -> None:
    one = "Process 7{0}: python t.py\nPython v3.12.3 (/usr/bin/python3)\n\n"
    one += 'Thread 7{0} (idle): "MainThread"\n    step (t.py:{0})'
    pairs = zip(one.format(1).splitlines(), one.format(2).splitlines(), strict=True)
    found = stacks.read("\n".join(f"1: {first}\n2: {second}" for first, second in pairs))
    assert [(process.rank, process.pid, str(process.threads[0].frames[0])) for process in found] == [
        ("1", 71, "step (t.py:1)"),
        ("2", 72, "step (t.py:2)"),
    ]


def test_a_crash_is_no_stall() -> None:
    stack = 'hread 0x01 (most recent call first):\n  File "a.py", line 1 in f\n'
    assert stacks.read(f"Fatal Python error: Segmentation fault\n\nCurrent t{stack}") == []
    timer = f"Timeout (0:00:30)!\nT{stack}"
    assert len(stacks.read(timer + timer)) == 2  # each time anew


def test_own_text_is_read_as_it_was_written() -> None:
    frame = Frame("one", "/x/a.py", 6, "with b:", ("a",))
    process = Process(7, "python a.py", "3", "n1", (Thread("t", (frame,), 7, False),), {"state": "S"})
    assert stacks.read(stacks.write([process])) == [process]


@given(st.text())
def test_any_text_is_read(text: str) -> None:
    stacks.read(text, "x")


def test_a_line_without_end() -> None:
    """A trainer's command line has many kilobytes; `int` refuses a number of so many digits."""
    text = f'Process 7: python t.py {"x=1 " * 5000}\nThread 7 (idle): "MainThread"\n    f (t.py:1)\n'
    (process,) = stacks.read(f"{text}    g (t.py:{'9' * 5000})\nProcess {'9' * 5000}\n")
    assert [str(frame) for frame in process.threads[0].frames] == ["f (t.py:1)"]


def test_locks_that_a_line_holds() -> None:
    import ast

    program = "def f():\n    with a, self.lock:\n        b.acquire()\n        with c: pass\n"
    program += "        b.release()\n        g()\n"
    tree = ast.parse(program)
    assert source.held(tree, 2) == ()
    assert source.held(tree, 4) == ("a", "self.lock", "b")
    assert source.held(tree, 6) == ("a", "self.lock")
    tree = ast.parse("with counter.get_lock():\n    c.value += 1\nwith open(path), no_grad():\n    g()\n")
    assert (source.held(tree, 2), source.held(tree, 4)) == (("counter.get_lock()",), ())


def test_a_comprehension_has_the_name_of_the_function_around_it() -> None:
    """Of the same file only: a lambda that a library calls is around nothing that is known."""
    frames = ["<genexpr> (a.py:3)", "<listcomp> (a.py:3)", "f (a.py:3)", "<lambda> (a.py:2)", "call (b.py:1)"]
    text = 'Process 7: python a.py\nThread 7 (idle): "MainThread"\n' + "".join(
        f"    {one}\n" for one in frames
    )
    (process,) = stacks.read(text)
    named = [frame.function for frame in process.threads[0].frames]
    assert named == ["f.<listcomp>.<genexpr>", "f.<listcomp>", "f", "<lambda>", "call"]
    assert stacks.read(stacks.write([process]))[0].threads == process.threads
