"""Which thread has a connection, who holds a lock no longer, and what a watch has not seen."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from jobspec.runtime.head import dumps, stall_watch
from jobspec.runtime.stalls import cohorts, far_ends, source, stacks, waits
from jobspec.runtime.stalls.cohorts import View
from jobspec.runtime.stalls.explanation import Explanation
from jobspec.runtime.stalls.stacks import Frame, Process, Thread
from tests.runtime.stalls.test_claims import LIB, explained, one, process, thread
from tests.runtime.stalls.test_what_has_come import recorded

NEAR, FAR = "127.0.0.1:4002", "127.0.0.1:4001"
READS = f"SocketIO.readinto {LIB}/socket.py:706"
SERVES = (f"BaseServer.serve_forever {LIB}/socketserver.py:233", "serve /r/a.py:28 server.serve_forever()")
HANDLES = f"ThreadingMixIn.process_request_thread {LIB}/socketserver.py:691"
ACCEPTS = (f"socket.accept {LIB}/socket.py:294", "serve /r/a.py:30 link, _ = server.accept()")


def asks() -> str:
    calls = {"7": f"recvfrom on socket {NEAR} -> {FAR} ESTABLISHED"}
    ends = [[NEAR, FAR, "ESTABLISHED", 0, 0, 0]]
    return process(7, READS, "ask /r/a.py:37 answer.readline()", calls=calls, sockets=ends)


def server(main: tuple[str, ...], *others: list[str], **calls: str) -> str:
    told = {number.strip("t"): call for number, call in calls.items()}
    text = process(
        8, *main, calls=told, sockets=[[FAR, "", "LISTEN", 0, 0, 0], [FAR, NEAR, "ESTABLISHED", 0, 0, 0]]
    )
    return "\n".join([text, *(line for other in others for line in other)])


def test_the_thread_that_has_the_connection_is_the_other_end() -> None:
    _, found = recorded("expect_continue_ignored")
    assert "which waits for the network at Rewards.do_POST (/r/expect_continue_ignored.py:19)" in found.what
    assert "which waits for work" not in found.what
    assert (
        ": each seems to wait for the other; in pid 101 on `n1` thread `MainThread` waits for work"
        in found.what
    )


def test_who_calls_serve_forever_answers_no_request() -> None:
    main = one(server(SERVES)).threads[0]
    assert not waits.answers(main)
    own = Thread("x", (Frame("do_GET", "/r/a.py", 9), Frame("process_request", f"{LIB}/socketserver.py", 7)))
    assert waits.answers(own)


def test_the_thread_below_a_handler_is_told_where_none_is_in_a_call() -> None:
    grades = thread(9, "request", "do_POST /r/a.py:19 time.sleep(99)", HANDLES)
    view = View(stacks.read("\n\n".join([asks(), server(SERVES, grades, t8="poll", t9="clock_nanosleep")])))
    told = far_ends.far(view.last[:1], view)
    assert told == "; the other end is pid 8 on `n1`, which sleeps at do_POST (/r/a.py:19): `time.sleep(99)`"


def test_where_any_thread_may_have_it_only_the_process_is_named() -> None:
    """A server of its own: nothing tells which of its threads has taken the connection."""
    some = thread(9, "grader", f"Condition.wait {LIB}/threading.py:327", "grade /r/a.py:9 ready.wait()")
    what = explained(asks(), server(ACCEPTS, some, t8="accept4 on socket", t9="futex")).what
    assert (
        "; the other end is pid 8 on `n1`; in pid 8 on `n1` thread `MainThread` waits for a connection"
        in what
    )
    assert "; thread `grader` waits for an event, a condition or a barrier at grade (/r/a.py:9)" in what
    alone = explained(asks(), server(ACCEPTS, t8="accept4 on socket")).what
    assert "; the other end is pid 8 on `n1`, which waits for a connection at serve" in alone


def test_a_thread_of_its_own_in_a_call_on_the_connection() -> None:
    reads = thread(9, "link", READS, "body /r/a.py:9 link.recv(4)")
    called = {"t8": "accept4 on socket", "t9": f"recvfrom on socket {FAR} -> {NEAR} ESTABLISHED"}
    what = explained(asks(), server(ACCEPTS, reads, **called)).what
    assert "the other end is pid 8 on `n1`, which waits for the network at body (/r/a.py:9)" in what


def test_a_handler_that_reads_the_next_request_waits_for_the_client() -> None:
    """The client reads on to the end of the connection, as its answer has no length."""
    reads = thread(9, "request", READS, f"handle_one_request {LIB}/http/server.py:404", HANDLES)
    calls = {"t8": "poll", "t9": f"recvfrom on socket {FAR} -> {NEAR} ESTABLISHED"}
    what = explained(asks(), server(SERVES[:1], reads, **calls)).what
    assert what.endswith(
        "; the other end is pid 8 on `n1`, which waits for the network: each waits for the other"
    )


@pytest.mark.parametrize(
    ("frozen", "says"),
    [
        (True, "the run stands still: nothing new for"),
        (False, "no watched sign of work came, though its processes move, begin or use the CPU: nothing new"),
        (None, "no watched sign of work came: nothing new for"),
    ],
)
def test_what_the_watch_says(frozen: bool | None, says: str) -> None:
    found = Explanation("busy", "pid 7 uses the CPU", "", "", frozen=frozen)
    told = stall_watch.finding(found, 31.0, 30.0, "step", "no output", Path("/x"), "")
    assert told.what.startswith(says)


def test_who_waits_on_a_condition_has_let_its_lock_go(tmp_path: Path) -> None:
    file = tmp_path / "a.py"
    file.write_text(
        "def sample(self):\n    with self.changed, self.other:\n        self.changed.wait_for(ready)\n"
    )
    own = Frame("sample", str(file), 3)
    waiting = Frame("Condition.wait", f"{LIB}/threading.py", 327)
    for frames, held in (((waiting, own), ("self.other",)), ((own,), ("self.changed", "self.other"))):
        told = source.Sources().process(Process(7, threads=(Thread("MainThread", frames),)))
        assert told.threads[0].frames[-1].held == held


def test_a_condition_with_a_predicate() -> None:
    waiting = f"Condition.wait {LIB}/threading.py:327"
    found = explained(
        process(7, waiting, "sample /r/a.py:9 self.changed.wait_for(full)", calls={"7": "futex"})
    )
    assert found.fix.startswith("see whether what it waits for (`wait_for`) can come true at all")


def test_a_stack_of_a_process_that_ran_may_lack_frames() -> None:
    (found,) = stacks.read(process(7, "count /r/a.py:9 return sum(", calls={"7": "running"}))
    (group,) = cohorts.cohorts([found])
    assert dumps._stack(group)[0] == "    (taken while it ran: frames may be missing)"
    before, now = (
        replace(found, facts={**found.facts, "cpu_s": spent, "time": spent}) for spent in (0.0, 15.0)
    )
    view = View([before], [now])
    told = dumps._why(Explanation("busy", "", "", "", frozen=False), view)
    assert told.startswith("moved or used the CPU between the samples: at least")


def test_a_group_says_which_of_several_coroutines_it_tells_of() -> None:
    takes = (f"Lock.acquire {LIB}/asyncio/locks.py:113", "generate /r/a.py:25 async with self.lock:")
    loop = process(7, f"EpollSelector.select {LIB}/selectors.py:468", calls={"7": "epoll_wait"})
    tasks = [line for name in ("a", "b") for line in thread(0, f"task {name}", *takes)]
    head, *rest = loop.splitlines()
    (group,) = cohorts.cohorts(stacks.read("\n".join([head, rest[0], *tasks, *rest[1:]])))
    assert cohorts.group_line(group).endswith("`async with self.lock:` (coroutine `a`, one of 2)")


def test_the_thread_that_sleeps_is_named() -> None:
    future = (
        f"Condition.wait {LIB}/threading.py:327",
        f"Future.result {LIB}/concurrent/futures/_base.py:451",
    )
    text = "\n".join([
        process(7, *future, "main /r/a.py:40 done.result()", calls={"7": "futex", "8": "clock_nanosleep"}),
        *thread(8, "scheduler", "serve /r/a.py:42 time.sleep(0.05)"),
    ])  # fmt: skip
    found = explained(text)
    assert (
        "`time.sleep(0.05)` in its thread `scheduler` (thread `MainThread` waits for a future" in found.what
    )
    assert found.why == "inferred: that thread `MainThread` waits for thread `scheduler` is not shown"
