"""What is said where two things may be meant: less, or of both."""

from __future__ import annotations

import pytest

from jobspec.runtime.stalls import explain, stacks, waits
from jobspec.runtime.stalls.cohorts import View, does
from tests.runtime.stalls.test_claims import LIB, explained, one, process, thread

POOL = f"{LIB}/multiprocessing/pool.py"
WAIT = f"Condition.wait {LIB}/threading.py:327"
GET = f"{LIB}/multiprocessing/queues.py"


def threads(main: str, *more: list[str]) -> str:
    return "\n".join([main, *(line for lines in more for line in lines)])


@pytest.mark.parametrize(
    ("line", "inner", "says", "fix"),
    [
        ("self.rows.popitem()", "Log.__del__", "that is a destructor", "drop the last reference"),
        ("return function(*args)", "Log.add", "that may be a callback, the handler of a signal or a wrapped",
         "see whether a callback or a handler"),
        ("self.add(1)", "Log.add", "holds one of that name itself", "`RLock`"),
    ],
)  # fmt: skip
def test_who_calls_a_function_that_its_line_does_not_name(line: str, inner: str, says: str, fix: str) -> None:
    frames = [
        f"    {inner} (/r/a.py:9)  | with self.lock:",
        f"    Log.flush (/r/a.py:5)  | {line}  |held self.lock",
    ]
    found = explained("\n".join([process(7), *frames]))
    assert says in found.what
    assert fix in found.fix


def test_all_threads_that_wait_for_a_lock_are_told() -> None:
    waiting = [thread(number, f"rollout_{number}", "take /r/a.py:9 with lock:") for number in (8, 9)]
    holder = ['Thread 10 (idle): "rollout_2"', "    refill (/r/a.py:12)  | time.sleep(1)  |held lock"]
    found = explained(threads(process(7, WAIT, "main /r/a.py:40 done.wait()"), *waiting, holder))
    assert "; for one of that name thread `rollout_9` waits, too; by its lines" in found.what
    assert found.fix.startswith("see whether it is held there for long")


def test_the_other_threads_of_who_waits_for_an_event_are_told() -> None:
    main = process(7, WAIT, f"Event.wait {LIB}/threading.py:629", "drain /r/a.py:36 self.idle.wait()")
    other = thread(8, "Dummy-1", WAIT, f"Event.wait {LIB}/threading.py:629", "serve /r/a.py:9 stop.wait()")
    says = "; thread `Dummy-1` waits for an event, a condition or a barrier at serve (/r/a.py:9)"
    assert says in explained(threads(main, other)).what


@pytest.mark.parametrize("pools", [1, 2])
def test_of_two_pools_nothing_tells_whose_thread_it_is(pools: int) -> None:
    main = process(7, f"ApplyResult.get {POOL}:768", "grade /r/a.py:31 result.get()")
    taking = thread(8, "T1", WAIT, "called /r/a.py:9 done.wait()", f"Pool._handle_results {POOL}:579")
    rests = thread(9, "T2", f"Connection.recv {LIB}/multiprocessing/connection.py:1",
                   f"Pool._handle_results {POOL}:579")  # fmt: skip
    found = explained(threads(main, taking, *[rests] * (pools - 1)))
    assert ("; its results are taken by thread `T1`, which" in found.what) is (pools == 1)
    assert found.fix.startswith("let a callback" if pools == 1 else "see what the pool's workers do")


def test_the_threads_of_a_pool_of_threads_are_its_workers() -> None:
    main = process(
        7, f"ApplyResult.get {POOL}:768", f"Pool.map {POOL}:367", "grade_all /r/a.py:31 pool.map(f, rows)"
    )
    worker = thread(8, "Thread-1 (worker)", WAIT, "grade /r/a.py:9 ready.wait()", f"worker {POOL}:125")
    found = explained(threads(main, worker))
    assert "; thread `Thread-1 (worker)` waits for an event, a condition or a barrier at grade" in found.what
    assert "killed" not in found.fix


def test_who_waits_while_another_of_its_threads_computes() -> None:
    """It is not moved: what it waits for is told, and which thread ran."""
    main = [f"ApplyResult.get {POOL}:768", "grade /r/a.py:31 result.get()"]
    spins = thread(8, "T1", f"Pool._handle_workers {POOL}:522")
    first, second = (
        threads(process(7, *main, calls={"8": "running"}, cpu_s=used, time=used), spins)
        for used in (1.0, 16.0)
    )
    found = explain.explain(View(stacks.read(first), stacks.read(second)))
    assert "and now" not in found.what
    assert (
        "; the process used the CPU between the two samples, and its thread `T1` was running in both"
        in found.what
    )
    assert found.frozen is False


@pytest.mark.parametrize("used", [0.3, 14.0])
def test_who_looks_again_and_again_does_not_compute(used: float) -> None:
    line = "take /r/a.py:9 return rows.get(timeout=0.01)"
    asleep = process(
        7, WAIT, f"Queue.get {LIB}/queue.py:180", line, calls={"7": "futex"}, cpu_s=1.0, time=0.0
    )
    awake = process(7, "take /r/a.py:11 continue", calls={"7": "running"}, cpu_s=1.0 + used, time=15.0)
    found = explain.explain(View(stacks.read(asleep), stacks.read(awake)))
    assert (found.kind == "busy") is (used > 10)


def test_who_waits_in_a_call_of_its_event_loop_stops_its_coroutines() -> None:
    loop = f"run_forever {LIB}/asyncio/base_events.py:607"
    get = (WAIT, f"Queue.get {LIB}/queue.py:171", "collect /r/a.py:31 rows.append(results.get())")
    says = "; its thread `MainThread` runs an event loop, whose other coroutines cannot go on meanwhile"
    assert says in explained(process(7, *get, loop, "<module> /r/a.py:40")).what
    assert says not in explained(process(7, *get, "<module> /r/a.py:40")).what


@pytest.mark.parametrize("own", [True, False])
def test_who_has_the_other_end_itself_may_wait_for_a_thread_of_its_own(own: bool) -> None:
    ends = {"own_ends": ["7"]} if own else {}
    main = process(7, f"Queue.get {GET}:103", "main /r/a.py:9 rewards.get()", calls={"7": "read on pipe"},
                   behind={"7": [[8, "python a.py", "read on pipe"]]}, **ends)  # fmt: skip
    scorer = thread(9, "scorer", WAIT, f"Event.wait {LIB}/threading.py:629", "score /r/a.py:5 ready.wait()")
    child = process(8, f"Queue.get {GET}:103", "log /r/a.py:3 lines.get()", calls={"8": "read on pipe"},
                    behind={"8": [[7, "python a.py", "read on pipe"]]}, parent=7)  # fmt: skip
    found = explained(threads(main, scorer), child)
    assert ("each seems to wait for the other" in found.what) is not own
    assert ("; the process has the other end itself, as has pid 8 on `n1`, which" in found.what) is own
    alone = explained(threads(main.replace('[[8, "python a.py", "read on pipe"]]', "[]"), scorer))
    said = "; no other process that was seen has the other end"
    assert f"{said}{', but this one has it itself' if own else ''}" in alone.what


def test_all_processes_are_all_but_none() -> None:
    """One that has nothing to do does not what the others do."""
    sleeps = [process(pid, f"nap /r/a.py:{pid} time.sleep(9999)".replace(f":{pid}", ":9")) for pid in (7, 8)]
    idle = process(9, f"worker {POOL}:114")
    assert "all processes that were seen do so" in explained(*sleeps).what
    assert "all processes" not in explained(*sleeps, idle).what


def test_constructors_that_ask_each_other_are_not_helped_by_threads() -> None:
    get = "get /x/site-packages/ray/_private/worker.py:3"
    actors = [
        process(
            pid, get, f"{name}.__init__ /r/a.py:{pid} ray.get(x)", name=f"ray::{name.lower()}:{name}.__init__"
        )
        for pid, name in ((7, "Trainer"), (8, "Engine"))
    ]
    found = explained(*actors)
    assert found.kind == "ray-cycle"
    assert "before its constructor has ended" in found.fix
    begun = [f"an actor `{name}` (PENDING_CREATION)" for name in ("Engine", "Trainer")]
    assert explain.explain(View(stacks.read("\n\n".join(actors)), ray={"pending": begun})).kind == "ray-cycle"


@pytest.mark.parametrize("threads_of", [0, 7, 8])
def test_two_that_wait_for_each_other_may_have_threads_that_would_answer(threads_of: int) -> None:
    connections = {7: "127.0.0.1:5 -> 127.0.0.1:6", 8: "127.0.0.1:6 -> 127.0.0.1:5"}
    texts = []
    for pid, connection in connections.items():
        near, far = connection.split(" -> ")
        calls = {
            "17": "clock_nanosleep",
            "18": "clock_nanosleep",
            str(pid): f"recvfrom on socket {connection}",
        }
        main = process(pid, f"ask /r/a.py:{pid} link.recv(10)", calls=calls,
                       sockets=[[near, far, "ESTABLISHED"]])  # fmt: skip
        serves = thread(pid + 10, "serves", "answer /r/a.py:1 time.sleep(9)")
        texts.append(threads(main, *[serves] * (pid == threads_of)))
    said = explained(*texts).what
    assert (": each waits for the other" in said) is (threads_of == 0)
    assert (": each seems to wait for the other" in said) is (threads_of > 0)
    sleeps = f"; in pid {threads_of} on `n1` thread `serves` sleeps at answer (/r/a.py:1)"
    assert (sleeps in said) is (threads_of > 0)


@pytest.mark.parametrize(
    ("function", "says"),
    [("open_connection", "until its connection is made"), ("StreamReader.read", "at a stream of asyncio")],
)
def test_a_connection_that_is_not_made_is_no_stream(function: str, says: str) -> None:
    task = thread(0, "task Task-2", f"{function} {LIB}/asyncio/streams.py:47", "ask /r/a.py:9 await ask()")
    loop = process(7, f"run_forever {LIB}/asyncio/base_events.py:607", "<module> /r/a.py:40")
    assert f"waits {says}" in explained(threads(loop, task)).what


@pytest.mark.parametrize(
    ("op", "says"),
    [
        ("all_reduce", "waits in the collective `all_reduce`"),
        ("batch_isend_irecv", "waits in `batch_isend_irecv`"),
        ("wait_tensor", "waits in `wait_tensor`"),
    ],
)
def test_not_all_for_which_ranks_wait_is_a_collective(op: str, says: str) -> None:
    frame = f"{op} /x/site-packages/torch/distributed/distributed_c10d.py:1"
    (group,) = explained(process(7, frame, "step /r/a.py:9 go()", rank="1")).cohorts
    assert does(group) == says


def test_of_several_that_wait_alike_none_is_picked() -> None:
    future = f"Future.result {LIB}/concurrent/futures/_base.py:451"
    main = process(
        7,
        WAIT,
        future,
        "main /r/a.py:40 done.result()",
        calls={"8": "clock_nanosleep", "9": "clock_nanosleep"},
    )
    pool = f"_worker {LIB}/concurrent/futures/thread.py:81"
    some = [thread(number, f"judge_{number}", "ask /r/a.py:9 time.sleep(999)", pool) for number in (8, 9)]
    loop = thread(
        10, "loop", WAIT, "score /r/a.py:5 done.wait()", f"run_forever {LIB}/asyncio/base_events.py:607"
    )
    found = explained(threads(main, *some, loop))
    assert "; thread `loop` waits for an event, a condition or a barrier at score (/r/a.py:5)" in found.what
    assert (
        " sleeps at ask (/r/a.py:9): `time.sleep(999)` in 2 of its threads (thread `MainThread`" in found.what
    )
    assert found.why == (
        "inferred: that thread `MainThread` waits for one of the 2 threads at that place is not shown"
    )


def test_what_only_sounds_like_a_collective() -> None:
    futex = {"calls": {"7": "futex"}}
    for line, kind in (
        ("work.wait()", "collective"),
        ("works[0].wait()", "collective"),
        ("worker.wait()", "lock"),
    ):
        assert waits.of(one(process(7, f"sync /r/a.py:9 {line}", rank="1", **futex))).kind == kind
    assert waits.of(one(process(7, "sync /r/a.py:9 work.wait()", **futex))).kind == "lock"
    dcp = "/x/site-packages/torch/distributed"
    save = (
        f"gather_object {dcp}/distributed_c10d.py:1",
        f"_DistWrapper.reduce_scatter {dcp}/checkpoint/utils.py:2",
    )
    assert waits.of(one(process(7, *save, "save /r/a.py:9 dcp.save(x)", rank="1"))).op == "gather_object"
