"""What the dump does not show is not said, or said to be a guess."""

from __future__ import annotations

import json
from typing import Any

import pytest

from jobspec.runtime.stalls import explain, phrases, stacks, waits
from jobspec.runtime.stalls.chains import other_end
from jobspec.runtime.stalls.cohorts import View
from jobspec.runtime.stalls.explanation import Explanation
from jobspec.runtime.stalls.stacks import Process

LIB = "/usr/lib/python3.11"


def process(pid: int, *frames: str, name: str = "python a.py", **facts: Any) -> str:
    """The text of a process of one thread; a frame is `function file:line text`, the innermost first."""
    told = {"node": "n1", "state": "S", "rank": "", **facts}
    return "\n".join(
        [f"# jobspec: {json.dumps(told)}", f"Process {pid}: {name}", *thread(pid, "MainThread", *frames)]
    )


def thread(number: int, name: str, *frames: str) -> list[str]:
    lines = [f'Thread {number} (idle): "{name}"']
    for frame in frames:
        function, place, *text = frame.split(" ", 2)
        lines.append(f"    {function} ({place})" + (f"  | {text[0]}" if text else ""))
    return lines


def explained(*texts: str, second: bool = False) -> Explanation:
    found = stacks.read("\n\n".join(texts))
    return explain.explain(View(found, found if second else ()))


def one(text: str) -> Process:
    (found,) = stacks.read(text)
    return found


def does(text: str) -> str:
    return phrases.phrase(waits.of(one(text)))[0]


def test_a_line_with_item_that_sleeps_waits_for_no_gpu() -> None:
    line = "back_off /r/a.py:9 time.sleep(delay.item())"
    assert waits.of(one(process(7, line, calls={"7": "clock_nanosleep"}, gpu=True))).kind == "sleep"
    assert waits.of(one(process(7, line.replace("time.sleep", "float"), calls={"7": "futex"}))).kind == "lock"
    on_gpu = process(7, "step /r/a.py:9 loss.item()", calls={"7": "running"}, gpu=True)
    assert waits.of(one(on_gpu)).kind == "device"


@pytest.mark.parametrize(
    ("line", "call", "says"),
    [
        ("take /r/a.py:9 return store.get()", "futex",
         "waits in a C function for another thread or process (futex)"),
        ("take /r/a.py:9 return store.get()", "recvfrom on socket 10.0.0.1:5 -> 10.0.0.2:6 ESTABLISHED",
         "waits for a key in a store of torch.distributed"),
        ("save /r/a.py:9 with db:", "fdatasync on /r/rows.db of ext4",
         "waits in the kernel ({op})"),
        ("ask /r/a.py:9 return link.recv(100)", "recvfrom on socket", "waits at a socket"),
    ],
)  # fmt: skip
def test_a_line_and_its_call(line: str, call: str, says: str) -> None:
    assert does(process(7, line, calls={"7": call})) == says


def test_a_queue_whose_lock_is_taken_is_not_full() -> None:
    entered = f"Condition.__enter__ {LIB}/threading.py:271"
    put = (f"Queue.put {LIB}/queue.py:133", "on_signal /r/a.py:9 requests.put('save')")
    assert does(process(7, entered, *put)) == "waits for the inner lock of a queue"
    assert (
        does(process(7, f"Condition.wait {LIB}/threading.py:327", *put)) == "waits for room in a full queue"
    )


def test_a_worker_that_cannot_hand_over_its_result_is_not_without_work() -> None:
    worker = f"worker {LIB}/multiprocessing/pool.py:131"
    full = f"SimpleQueue.put {LIB}/multiprocessing/queues.py:377"
    idle = f"SimpleQueue.get {LIB}/multiprocessing/queues.py:364"
    assert does(process(7, full, worker)) == "waits to hand over a result of its pool"
    assert does(process(7, idle, worker)) == "waits for work"


def test_a_barrier_of_asyncio_is_no_lock() -> None:
    locks = f"{LIB}/asyncio/locks.py"
    frames = (f"wait {locks}:264", f"_wait {locks}:541", f"wait {locks}:488", f"__aenter__ {locks}:472")
    text = process(
        7,
        f"select {LIB}/selectors.py:468",
        f"run_forever {LIB}/asyncio/base_events.py:607",
        "<module> /r/a.py:40",
    )
    task = "\n".join(thread(1, "task Task-2", *frames, "episode /r/a.py:9 async with barrier:"))
    found = explained(f"{text}\n{task}")
    assert "waits in its event loop for an event, a condition or a barrier at episode" in found.what


def test_a_soft_lock_is_held_by_nobody_who_has_locked_another_file() -> None:
    acquire = "FileLock.acquire /x/site-packages/filelock/_api.py:344"
    owner = process(
        8,
        "engine /r/a.py:5 time.sleep(2)",
        calls={"8": "clock_nanosleep"},
        locked=["/r/other.lock"],
        parent=7,
    )
    for line, kind in (("with SoftFileLock('w.lock'):", "file-lock"), ("with FileLock('w.lock'):", "sleep")):
        waiter = process(7, acquire, f"export /r/a.py:9 {line}", calls={"7": "clock_nanosleep"}, parent=1)
        found = explained(waiter, owner)
        assert found.kind == kind
        assert ("other.lock" in found.what) is False


def test_who_is_joined_by_name_is_told() -> None:
    """A thread that follows a log is none that ends."""
    text = process(7, f"Thread.join {LIB}/threading.py:1119", "<module> /r/a.py:30 sampler.join()",
                   calls={"7": "futex", "8": "futex", "9": "read on pipe"},
                   behind={"9": [[10, "python engine.py", "clock_nanosleep"]]})  # fmt: skip
    waiting = thread(8, "sampler", f"Event.wait {LIB}/threading.py:629", "sample /r/a.py:20 ready.wait()")
    reading = thread(9, "engine-log", "follow /r/a.py:10 for line in engine.stdout:")
    engine = process(10, "<module> /r/engine.py:4 time.sleep(2)", parent=7, calls={"10": "clock_nanosleep"})
    found = explained("\n".join([text, *waiting, *reading]), engine)
    assert found.kind == "join"
    assert "; thread `sampler` waits for an event, a condition or a barrier at sample" in found.what


def test_a_port_of_another_host_is_not_the_own_server() -> None:
    call = {"7": "recvfrom on socket 10.0.0.1:5 -> 10.9.9.9:80 ESTABLISHED"}
    mine = ["10.0.0.1:5", "10.9.9.9:80", "ESTABLISHED"]
    asker = process(7, "ask /r/a.py:9 link.recv(1)", calls=call, sockets=[mine])
    serve = ("serve /r/b.py:5 ready.wait()",)
    for listens, seen in (("0.0.0.0:80", False), ("127.0.0.1:80", False), ("10.9.9.9:80", True)):
        engine = process(8, *serve, sockets=[[listens, "", "LISTEN"]])
        found = stacks.read(f"{asker}\n\n{engine}")
        assert (other_end(found[0], View(found)) is not None) is seen


def test_a_stopped_process_waits_for_nobody() -> None:
    stopped = process(7, "read /r/a.py:9 pipe.read()", state="T", calls={"7": "read on pipe"},
                      behind={"7": [[8, "python b.py", "futex"]]})  # fmt: skip
    other = process(8, f"Event.wait {LIB}/threading.py:629", "serve /r/b.py:5 ready.wait()", parent=7)
    found = explained(stopped, other)
    assert found.kind == "stopped"
    assert "behind it" not in found.what


def test_a_step_of_a_chain_that_is_a_guess_says_so() -> None:
    """Nothing shows for which of Ray's workers the driver waits."""
    get = "get /x/site-packages/ray/_private/worker.py:3"
    driver = process(7, get, "<module> /r/a.py:9 ray.get(refs)")
    for method, seems in (("score", True), ("refs", False)):
        worker = process(
            8,
            "score /r/a.py:5 time.sleep(9000)",
            name=f"ray::Reward.{method}",
            calls={"8": "clock_nanosleep"},
        )
        line = driver if seems else driver.replace("ray.get(refs)", "ray.get(reward.refs.remote())")
        found = explain.explain(View(stacks.read(f"{line}\n\n{worker}")))
        asked = explain.blame("waits", [stacks.read(line)[0]], View(stacks.read(f"{line}\n\n{worker}")))
        assert found.named[0].pid == 8
        assert (", it seems," in asked.what) is seems
        assert ("is not shown" in asked.why) is seems


def test_what_two_do_within_is_told_of_both_only_where_it_is_the_same() -> None:
    def joined(pid: int, place: str) -> str:
        main = process(pid, f"Thread.join {LIB}/threading.py:1119", "<module> /r/a.py:30 one.join()",
                       calls={str(pid): "futex", str(pid * 10): "clock_nanosleep"})  # fmt: skip
        return "\n".join([main, *thread(pid * 10, "work", f"{place} time.sleep(900)")])

    def what(*places: str) -> str:
        return explained(*(joined(pid, place) for pid, place in enumerate(places, 1))).what

    assert "sleep at load" in what("load /r/a.py:5", "load /r/a.py:5")
    differ = what("load /r/a.py:5", "save /r/a.py:6")
    assert "wait for one of their threads at <module>" in differ
    assert (
        "; pid 1 on `n1`: sleeps at load (/r/a.py:5): `time.sleep(900)`; pid 2 on `n1`: sleeps at sav"
        in differ
    )


def test_at_a_pseudo_terminal_may_be_any_child() -> None:
    call, rows = {"7": "read on /dev/ptmx"}, {"7": [[8, "bash", "wait4"], [9, "python worker.py", "futex"]]}
    what = explained(process(7, "read /r/a.py:9 os.read(fd, 1)", calls=call, behind=rows)).what
    assert "; it has started pid 8 (`bash`, wait4) and pid 9" in what
    assert "the other end" not in what


@pytest.mark.parametrize(("used", "kind"), [(0.06, "sleep"), (14.0, "busy")])
def test_who_is_met_between_two_naps_does_not_compute(used: float, kind: str) -> None:
    line = "push /r/a.py:9 time.sleep(pause)"
    asleep = process(7, line, calls={"7": "clock_nanosleep"}, cpu_s=0.1, time=100.0)
    awake = process(7, line, calls={"7": "running"}, cpu_s=0.1 + used, time=115.0)
    found = explain.explain(View(stacks.read(asleep), stacks.read(awake)))
    assert found.kind == kind
    assert (" sleeps at push" in found.what) is (kind == "sleep")


def test_who_is_stopped_at_its_terminal_is_stopped_again() -> None:
    tool = process(8, "<module> <string>:4", state="T", parent=7, calls={"8": "read on /dev/tty of devtmpfs"})
    asks = process(7, f"Popen.wait {LIB}/subprocess.py:1264", "run_tool /r/a.py:25 tool.wait()",
                   calls={"7": "wait4 of 8"}, behind={"7": [[8, "python ask.py", ""]]})  # fmt: skip
    found = explained(asks, tool)
    assert "stopped (state T) in a call at its terminal" in found.what
    assert ", while pid 7 on `n1` waits for a process that it has started at run_tool (/r/a.py" in found.what
    assert "SIGCONT lets it go on" not in found.fix
    assert (found.kind, found.blocked, [one.pid for one in found.named]) == ("stopped", False, [8])
    elsewhere = explained(asks, tool.replace("read on /dev/tty of devtmpfs", "futex"))
    assert "SIGCONT may let it go on, unless something stops it again" in elsewhere.fix


@pytest.mark.parametrize(("over", "kind"), [("judge.stdout", "pipe"), ("link", "waits")])
def test_a_select_over_the_output_of_a_program_is_a_pipe(over: str, kind: str) -> None:
    found = explained(process(7, f"ask /r/a.py:9 select.select([{over}],[],[])", calls={"7": "pselect6"}))
    assert found.kind == kind


def test_a_coroutine_at_its_queue_rests_beside_one_that_waits_for_a_future() -> None:
    idle = f"get {LIB}/asyncio/queues.py:158"
    ray = "/x/site-packages/ray/_private"
    frames = (f"Worker.main_loop {ray}/worker.py:1069", f"<module> {ray}/workers/default_worker.py:323")
    main = process(7, *frames, name="ray::Engine")
    rests = thread(0, "task Task-6", idle, "step_loop /r/a.py:31 request = await arrived.get()")
    waiting = thread(0, "task Task-4", "generate /r/a.py:27 return await answer")
    both = explained("\n".join([main, *rests, *waiting]))
    assert (both.kind, both.inferred, both.frame and both.frame.function) == ("event-loop", True, "generate")
    assert "; another coroutine waits at a queue at step_loop (/r/a.py:31)" in both.what
    assert explained("\n".join([main, *rests])).kind == "queue"
    for seconds, kind in ((2, "event-loop"), (9000, "sleep")):
        beat = thread(
            0, "task Task-3", f"sleep {LIB}/asyncio/tasks.py:649", f"beat /r/a.py:9 asyncio.sleep({seconds})"
        )
        assert explained("\n".join([main, *beat, *waiting])).kind == kind


def test_of_ranks_in_a_group_of_some_only_those_are_waited_for() -> None:
    c10d = "/x/site-packages/torch/distributed/distributed_c10d.py:1"
    some = [f"all_reduce {c10d}", "reduce /r/a.py:24 dist.all_reduce(x, group=mesh.tensor)"]
    rest = [f"barrier {c10d}", "<module> /r/a.py:33 dist.barrier()"]
    ranks = [process(rank, *(some if rank in (0, 3) else rest), rank=str(rank)) for rank in range(4)]
    found = explained(*ranks)
    assert (found.kind, found.named) == ("collective-order", ())
    assert found.why == (
        "where the group at reduce (/r/a.py:24) has only some of the ranks, only these are waited for"
    )
    assert "torch warns of that in the log" in found.fix


@pytest.mark.parametrize("left", [True, False])
def test_a_pool_without_the_thread_that_takes_its_results(left: bool) -> None:
    pool = f"{LIB}/multiprocessing/pool.py"
    main = process(
        7, f"ApplyResult.get {pool}:768", f"Pool.map {pool}:367", "grade /r/a.py:31 pool.map(f, rows)"
    )
    own = [
        thread(8, "Thread-1", f"Pool._handle_workers {pool}:522"),
        thread(9, "Thread-2", f"Pool._handle_tasks {pool}:531"),
    ]
    own += [thread(10, "Thread-3", f"Pool._handle_results {pool}:579")] * left
    what = explained("\n".join([main, *(line for one in own for line in one)])).what
    assert ("; the pool's thread that takes them (`_handle_results`) has ended" in what) is not left


def test_figures_of_the_nodes_are_told_only_beside_what_is_asked_for() -> None:
    get = "get /x/site-packages/ray/_private/worker.py:3"
    driver = stacks.read(process(7, get, "<module> /r/a.py:9 ray.get(refs)"))
    actor = "an actor `Reward` (PENDING_CREATION)"
    for rows, why in (
        ([actor], ""),
        ([actor, "1 task of {GPU: 8}"], "at most 1 CPU"),
    ):
        found = explain.explain(View(driver, ray={"pending": rows, "have": "at most 1 CPU"}))
        assert (found.kind, found.why) == ("ray-demand", why)
    task = "1 task `reward-3:Reward.__init__` of {memory: 4.7e+09}"
    found = explain.explain(View(driver, ray={"pending": [actor], "queued": [task]}))
    assert found.why == f"no node has room for {task}"
