"""What is no longer waited for, who is not at fault, and whose a stack is: by recorded dumps."""

from __future__ import annotations

from pathlib import Path

import pytest

from jobspec.runtime.head import dumps
from jobspec.runtime.stalls import cohorts, explain, source, stacks, waits
from jobspec.runtime.stalls.cohorts import View
from jobspec.runtime.stalls.explanation import Explanation
from jobspec.runtime.stalls.stacks import Frame
from tests.runtime.stalls.test_claims import LIB, does, explained, one, process, thread

DUMPS = Path(__file__).parents[2] / "fixtures/stalls/kinds"
SYNC, QUEUES = f"{LIB}/multiprocessing/synchronize.py", f"{LIB}/multiprocessing/queues.py"
CONNECTION = f"{LIB}/multiprocessing/connection.py"


def recorded(name: str) -> tuple[View, Explanation]:
    view = View(stacks.read((DUMPS / f"{name}.txt").read_text()))
    return view, explain.explain(view)


def test_a_queue_that_has_given_its_item_is_not_waited_for() -> None:
    """The memory of the tensor is asked for at another socket."""
    _, found = recorded("tensor_of_stopped_sender")
    assert found.kind == "stopped"
    assert "at a queue" not in found.what.split("while ")[1]
    assert "pid 100 on `n1` waits in the authentication of a connection of `multiprocessing` at" in found.what


@pytest.mark.parametrize(
    ("inner", "says"),
    [
        ([f"Connection._recv {CONNECTION}:395"], "waits at a queue between processes"),
        ([f"SemLock.__enter__ {SYNC}:98"], "waits at a queue between processes"),
        ([f"recvfds {LIB}/multiprocessing/reduction.py:150",
          f"detach {LIB}/multiprocessing/resource_sharer.py:58"], "waits at a socket"),
        ([f"Client {CONNECTION}:524", f"rebuild_connection {CONNECTION}:965"], "stands"),
    ],
)  # fmt: skip
def test_what_get_calls(inner: list[str], says: str) -> None:
    calls = {"7": "recvmsg on socket" if says == "waits at a socket" else ""}
    assert (
        does(process(7, *inner, f"Queue.get {QUEUES}:122", "take /r/a.py:9 rows.get()", calls=calls)) == says
    )


def test_who_sets_an_event_that_a_killed_one_does_not_answer() -> None:
    """Those that it has woken are not said to wait for the event alone, and the stack is not that of all."""
    view, found = recorded("event_set_counts_killed")
    assert found.what.startswith("pid 100 on `n1` waits inside of `set()`, `clear()` or `notify()`")
    assert "wait in `wait()` of an event, a condition or a barrier of `multiprocessing` at" in found.what
    assert "killed" in found.fix
    woken = next(group for group in found.cohorts if len(group.members) == 3)
    head = dumps._stack(woken)[0]
    assert head == "    of pid 101 on `n1`; pid 102 on `n1`; that of pid 103 on `n1` is another one:"
    assert dumps._stack(woken)[-1] == "    (1 further frame)"
    assert "another one" not in "".join(dumps._stack(cohorts.Cohort(woken.wait, woken.members[:1])))
    assert view.last


@pytest.mark.parametrize(
    ("frame", "says"),
    [
        ("Condition.wait (/usr/lib/python3.11/threading.py:327)  | waiter.acquire()",
         "waits for an event, a condition or a barrier"),
        ("Condition.wait (/usr/lib/python3.11/threading.py:334)  | self._acquire_restore(saved_state)",
         "waits for the lock beneath an event, a condition or a barrier"),
        ("Condition.wait (/usr/lib/python3.11/multiprocessing/synchronize.py:275)  | self._lock.acquire()",
         "waits for the lock beneath an event, a condition or a barrier"),
        ("Condition.wait (/usr/lib/python3.11/multiprocessing/synchronize.py:268)"
         "  | return self._wait_semaphore.acquire(True, timeout)",
         "waits for an event, a condition or a barrier"),
    ],
)  # fmt: skip
def test_the_lock_beneath_an_event_is_not_its_signal(frame: str, says: str) -> None:
    text = "\n".join([process(7), f"    {frame}", *thread(7, "x", "go /r/a.py:9 ready.wait()")[1:]])
    assert does(text) == says


def test_the_line_of_pythons_locks_is_read_and_of_other_libraries_is_not(tmp_path: Path) -> None:
    for name in ("threading.py", "queue.py"):
        (tmp_path / "lib/python3.11").mkdir(parents=True, exist_ok=True)
        (tmp_path / "lib/python3.11" / name).write_text("with lock:\n    waiter.acquire()\n")
    told = [
        source.Sources().frame(Frame("wait", str(tmp_path / "lib/python3.11" / name), 2))
        for name in ("threading.py", "queue.py")
    ]
    assert [(one.text, one.held) for one in told] == [("waiter.acquire()", ()), ("", ())]


def test_the_coroutine_for_which_the_loop_runs_comes_first() -> None:
    _, found = recorded("task_collected")
    assert "waits at a queue of its own process at collect.<listcomp>" in found.what
    assert "; coroutine `engine` waits in its event loop for an event" in found.what
    assert found.frame is not None
    assert found.frame.function == "collect.<listcomp>"


def test_who_has_taken_a_connection_is_its_other_end_and_nobody_else_that_listens() -> None:
    """The driver has the listener too; the idle one is not among those that wait for another."""
    _, found = recorded("ray_writer_from_last_phase")
    assert [member.pid for member in found.named] == [102]
    assert "the other end is pid 101 on `n1`, which waits for a connection at bucket" in found.what
    assert "for another" not in found.what


def test_who_leaves_out_the_group_that_another_line_of_the_function_gives() -> None:
    _, found = recorded("reduces_in_world")
    assert [member.rank for member in found.named] == ["1"]
    assert found.inferred
    assert "has `group=` elsewhere in `length_penalty`, and none here, so it may be of all ranks" in found.why


def test_a_program_without_a_stack_is_listed_with_its_call() -> None:
    waiting = process(7, "run /r/a.py:9 line = shell.stdout.readline()", calls={"7": "read on pipe"},
                      behind={"7": [[8, "bash --norc", "read on pipe"], [7, "python", ""]]})  # fmt: skip
    (found,) = stacks.read(waiting)
    assert dumps._without_stack(View([found])) == [
        "- pid 8 (`bash --norc`) on `n1`: no stack was taken; it stands in `read on pipe`"
    ]


def test_a_future_whose_thread_stands_in_a_c_function_is_told_at_its_own_line() -> None:
    main = process(7, f"wait {LIB}/concurrent/futures/_base.py:305", "gather /r/a.py:44 wait(futures)",
                   calls={"7": "futex", "8": "futex"})  # fmt: skip
    other = thread(8, "batcher", "serve /r/a.py:31 item = self.requests.get()")
    found = explained("\n".join([main, *other]))
    assert found.frame is not None
    assert found.frame.function == "gather"
    assert waits.of(one(main)).kind == "future"


def test_a_worker_of_ray_whose_calls_are_queued_is_not_said_to_wait_for_work() -> None:
    loop = "Worker.main_loop /x/site-packages/ray/_private/workers/default_worker.py:323"
    assert does(process(7, loop, name="ray::Trainer")) == "runs no code of the program"
    assert does(process(7, loop, name="python worker")) == "waits for work"
