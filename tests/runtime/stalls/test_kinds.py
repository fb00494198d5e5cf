"""Recorded dumps of stalls, one for each kind of wait that was once explained wrongly, with other paths."""

from __future__ import annotations

from pathlib import Path

import pytest

from jobspec.runtime.head.dumps import plain
from jobspec.runtime.stalls import explain, kinds, stacks, waits
from jobspec.runtime.stalls.cohorts import View, changes
from jobspec.runtime.stalls.phrases import DOES

DUMPS = Path(__file__).parents[2] / "fixtures" / "stalls" / "kinds"


@pytest.mark.parametrize(
    ("name", "kind", "pids", "rank", "function", "says"),
    [
        ("ddp_one_batch_less", "collective-order", [102], "2", "end_epoch",
         "ranks 0-1 wait in `backward()`, as for an all_reduce of gradients at train_epoch"),
        ("dedup_table_full", "busy", [102], "0", "insert", "pid 102 on `n1` uses the CPU at insert"),
        ("pool_shutdown_heartbeat", "join", [100], "0", "heartbeat",
         "thread `ThreadPoolExecutor-0_0` waits for an event, a condition or a barrier at heartbeat"),
        ("ray_sandbox_input", "pipe", [101], "", "run_sandbox",
         "the other end is pid 102 on `n1`, which waits at a pipe or a FIFO at <module> (<string>:1)"
         ": each waits for the other, while pid 100 on `n1` waits for a result of Ray"),
        ("server_asks_itself", "network", [101], "0", "Handler.score",
         "; at the other end listens the process itself, while pid 100"),
        ("task_done_missing", "queue", [100], "0", "score_all",
         "waits until `task_done()` is said of each item of its queue at score_all"),
        ("setter_cancelled", "event-loop", [100], "0", "generate",
         "waits in its event loop for an event, a condition or a barrier at generate"),
        ("sqlite_open_transaction", "sleep", [101], "1", "upload",
         "rank 1 on `n1`, pid 101 sleeps at upload (/r/sqlite_open_transaction.py:22): `time.sleep(3600)`, "
         "while rank 0 on `n1`, pid 100 waits for a lock on a file at log_metrics"),
        ("producer_ended_early", "queue", [102], "2", "next_batch",
         "no other process that was seen has the other end"),
        ("manager_queue", "sleep", [102], "0", "score",
         "while pid 100 on `n1` waits at a queue or another object of a multiprocessing manager at main"),
        ("env_pipe", "pipe", [100], "0", "step", "at environment (/r/own_env_pipe.py:13)"),
        ("server_thread", "network", [100], "0", "Handler.do_GET",
         "waits for a lock or a semaphore at Handler.do_GET"),
        ("mp_lock", "sleep", [101], "0", "upload",
         "while pid 100 on `n1` waits for a lock or a semaphore at write"),
        ("to_thread", "sleep", [100], "0", "score", "sleeps at score"),
        ("torchrun", "sleep", [103], "2", "next_batch", "while ranks 0-1 wait in the collective"),
        ("forked_ranks", "sleep", [103], "", "evaluate", "while pid 101 on `n1`; pid 102 on `n1` wait"),
        ("http_pool", "lock", [101], "1", "compact",
         "by its lines thread `Thread-1 (compact)` holds one of that name at compact "
         "(/r/own_http_pool.py:32), where it sleeps, while rank 0 on"),
        ("threads_queue", "join", [100], "0", "produce", "waits for room in a full queue at produce"),
        ("grandchild_pipe", "subprocess", [100], "0", "run_tool", "(`sleep 3600`, clock_nanosleep)"),
        ("debugger", "pipe", [101], "1", "compute_advantages",
         "rank 1 on `n1`, pid 101 waits for input (a debugger or an interactive console) at "
         "compute_advantages"),
        ("build_lock", "file-lock", [101], "1", "load_kernel",
         "pid 101 waits for the lock file of a kernel's build (`FileBaton`) at load_kernel "
         "(/r/stale_build_lock.py:34): `baton.wait()`; no process that was seen has such a file open, while"),
        ("coroutine_keeps_lock", "event-loop", [101], "0", "handle",
         "waits in its event loop for a lock or a semaphore at handle (/r/asgi_lock.py:19): "
         "`await lock.acquire()`, while pid 100 on `n1` waits for the network at post_reward"),
        ("lock_over_request", "network", [100], "0", "fetch_weights",
         "other coroutines wait for one of that name at rollout (/r/async_lock_across_request.py:30)"),
        ("loop_in_thread", "future", [100], "0", "update_weights",
         "coroutine `Task-1` waits in its event loop for an event, a condition or a barrier at "
         "update_weights"),
        ("client_pool", "network", [101], "1", "score",
         "waits until a connection of its own client's pool is free at score"),
        ("drain", "pipe", [100], "0", "run_tool",
         "; it has started pid 101 (`cat`, write on pipe), where the"),
        ("log_handler", "lock", [100], "0", "Ship.emit",
         "thread `rollouts`, which is further in `Handler.handle` and so may hold it, waits for room in a f"),
        ("shell_pipeline", "network", [102], "0", "ask_judge",
         "while pid 100 on `n1` is in `communicate()` with a program that it has started at "
         "evaluate"),
        ("unix_socket", "lock", [101], "0", "take_slot", "while pid 100 on `n1` waits at a socket at"),
        ("filelock", "network", [100], "0", "fetch", "while ranks 1-2 wait for a lock on a file at download"),
        ("ray_beside_loop", "queue", [102], "", "Reward.score",
         "pid 101 (`ray::Logger.run`) on `n1` sleeps at Logger.run"),
        ("ray_polled", "subprocess", [101], "", "compile_answer",
         "pid 102 (`sleep 3600`, clock_nanosleep), while pid 100 on `n1` sleeps at <module>"),
        ("pool_of_requests", "lock", [101], "0", "Handler.do_POST",
         "waits for a lock or a semaphore at Handler.do_POST (/r/pool_of_requests.py:18): "
         "`slots.acquire()`; th"),
        ("rank_serves_rank", "network", [101], "1", "fetch_rollouts",
         "the other end is rank 0 on `n1`, pid 100, which waits for an event, a condition or a barrier at "
         "Handler.do_GET (/r/rank_serves_rank.py:22): `policy.wait()`, while ranks 0, 2 wait in the"),
        ("signal_came_early", "signal", [100], "0", "wait_for_engine",
         "pid 100 on `n1` waits for a signal at wait_for_engine (/r/ready_signal_before_pause.py:41): "
         "`signal.pause()`, while pid 101 on `n1` waits for a message at a pipe or connection o"),
        ("store_not_joined", "network", [100], "0", "init_weight_group",
         "rank 0 on `n1`, pid 100 waits in the opening of a store of torch.distributed at init_weight_group"),
        ("loader_pipe", "pipe", [101], "0", "read_shard",
         "while pid 100 on `n1` waits in its data loader at epoch"),
        ("put_nowait_from_thread", "queue", [100], "0", "collect.<listcomp>",
         "waits at a queue of its own process at collect.<listcomp> (/r/put_nowait_from_thread.py:24)"),
        ("ray_stream_unread", "ray", [100], "", "<module>",
         "`ray.get(loaded)`, and pid 101 (`ray::Engine.rollouts`) on `n1` has begun `rollouts`, and is at "
         "no line of the program"),
        ("manager_lock_of_ended_worker", "lock", [100], "0", "publish_weights",
         "`lock.acquire()`; no process that was seen is shown to hold it, and pid 101 is the manager thr"),
        ("handler_takes_held_lock", "lock", [100], "0", "Metrics.report",
         "it holds one of that name itself, at Metrics.record (/r/handler_takes_held_lock.py:25); the line "
         "`self.rewards.sort()` does not name `Metrics.report`: that may be a callback, the handler of a si"),
        ("rpc", "lock", [101], "1", "score",
         "while rank 0 on `n1`, pid 100 waits for a future of torch, as its RPC gives at"),
        ("rpc_async_holder", "sleep", [101], "1", "fetch",
         "while rank 0 on `n1`, pid 100 waits for a future of torch, as its RPC gives at <module>"),
        ("listener_accepts_nobody", "sleep", [101], "0", "engine",
         "while pid 100 on `n1` waits for a connection at accept_engine"),
        ("loader_worker_flock", "loader", [100], "0", "<module>",
         "fcntl.flock(file, fcntl.LOCK_EX)`; that lock is held by rank 1 on `n1`, pid"),
        ("contextmanager_lock", "lock", [100], "0", "Log.exclusive",
         "/r/contextmanager_lock.py:30) (thread `uploader` sleeps at Log.upload"),
        ("thread_lock_over_await", "lock", [100], "0", "upload",
         "holds one of that name at upload (/r/thread_lock_over_await.py:16); it cannot go on, "
         "since that thread"),
        ("queue_beside_control_socket", "queue", [100], "0", "next_batch",
         "`return batches.get()` (thread `control` waits at a socket at control"),
        ("condition_holder_is_a_third", "lock", [100], "0", "refresh",
         "waits for `changed` at publish (/r/condition_holder_is_a_third.py:29); by its lines "
         "thread `refresher` holds one of that name at"),
        ("pool_joined_with_task", "network", [101], "0", "judge",
         "`connection.recv(1)`, while pid 100 on `n1` waits for the end of its multiprocessing pool"),
        ("recv_from_any", "busy", [103], "3", "decode",
         "(/r/recv_from_any.py:30): `dist.barrier()`; rank 0 on `n1`, pid 100 waits in `recv`"),
        ("overwrite_prompt", "pipe", [101], "0", "export",
         "pid 101 on `n1` waits for input (`input()`) at export (/r/overwrite_prompt.py:14)"),
        ("pager_on_pty", "pipe", [100], "0", "read_until",
         "waits for the output of a program at its pseudo terminal at read_until"),
        ("asyncio_queue_join", "queue", [100], "0", "score_all",
         "`await answers.join()`; another coroutine waits at a queue at scorer"),
        ("async_verifier_stdin_open", "pipe", [100], "0", "verify",
         "another coroutine waits at a queue at report (/r/async_verifier_stdin_open.py:38); it has started"),
        ("health_probe_never_authenticates", "sleep", [100], "0", "accept_engine",
         "pid 100 waits in the authentication of a connection of `multiprocessing` at accept_engine"),
    ],
)  # fmt: skip
def test_a_recorded_stall(name: str, kind: str, pids: list[int], rank: str, function: str, says: str) -> None:
    found = plain(explain.explain(View(stacks.read((DUMPS / f"{name}.txt").read_text()))))
    named = [(one["pid"], one["rank"]) for one in found["named"]]
    assert (found["kind"], named, found["frame"]["function"]) == (
        kind,
        [(pid, rank) for pid in pids],
        function,
    )
    assert says in found["what"]


@pytest.mark.parametrize(
    ("name", "pids", "says"),
    [
        ("both_send", [100, 101], "ranks 0-1 wait for the network at swap_shards (/r/both_sendall.py:29)"),
        ("manager_lock", [103, 104], "wait for a lock of a multiprocessing manager at write"),
        (
            "ray_joins_group_after_get",
            [],
            "(`ray::Engine.join_group`) on `n1` wait in the making of a process group "
            "(`init_process_group`) at join",
        ),
        ("recv_exact_too_much", [100, 101], "at recv_exact (/r/recv_exact_too_much.py:18)"),
        (
            "rpc_calls_back",
            [100, 101],
            "waits for `lock` at weights (/r/rpc_calls_back.py:16); by its lines thread "
            "`MainThread` holds one of that name",
        ),
        ("ring_of_sends", [], "all of ranks 0-2 wait in the same place: `send` at rotate"),
        (
            "subgroup_then_all",
            [],
            "rank 2 on `n1`, pid 102 waits in the collective `all_reduce` at normalize",
        ),
    ],
)
def test_all_or_none_of_those_that_wait_alike(name: str, pids: list[int], says: str) -> None:
    """Of a circle each is named, and nobody for a collective that may be of some ranks only."""
    found = plain(explain.explain(View(stacks.read((DUMPS / f"{name}.txt").read_text()))))
    assert [one["pid"] for one in found["named"]] == pids
    assert says in found["what"]


def test_ranks_that_all_send() -> None:
    found = explain.explain(View(stacks.read((DUMPS / "ring_of_sends.txt").read_text())))
    says = "each of them sends there; a receive that was begun before, as by `irecv`, no stack shows"
    assert found.why == says
    assert found.fix.startswith("see whether the one to which each sends receives from that one at all; do")
    assert "batch_isend_irecv" in found.fix


@pytest.mark.parametrize(
    ("there", "line", "held"),
    [
        ("Writer.write (/r/a.py:9)", "os.write(fd, data)", False),
        ("Cache.refresh (/r/b.py:9)", "os.write(fd, data)", False),
        ("Cache.refresh (/r/a.py:9)", "os.write(fd, data)", True),
        ("Cache.refresh (/r/a.py:9)", "self.lock.wait()", False),
    ],
    ids=["another class", "another file", "its own", "let go for a wait"],
)
def test_a_lock_is_the_one_of_that_name_in_its_class(there: str, line: str, held: bool) -> None:
    text = (
        '# jobspec: {"node": "n1", "state": "S"}\nProcess 7: python t.py\nThread 7 (idle): "MainThread"\n'
        "    Cache.lookup (/r/a.py:30)  | self.lock.acquire()\n    <module> (/r/a.py:50)  | lookup(key)\n"
        f'Thread 8 (idle): "other"\n    {there}  | {line}  |held self.lock\n'
    )
    found = explain.explain(View(stacks.read(text)))
    assert ("thread `other` holds one" in found.what) == held


def test_all_that_were_seen_wait_for_others_to_join() -> None:
    """No collective stands, and nobody is at fault for being there; who waits for them is told, too."""
    found = explain.explain(View(stacks.read((DUMPS / "ray_joins_group_after_get.txt").read_text())))
    assert found.kind == "rendezvous"
    assert "while pid 100 on `n1` waits for a result of Ray at <module>" in found.what
    assert found.why.startswith("if one has not come, it is none of these")


def test_an_actor_that_ray_starts_again_and_again_lacks_no_resources() -> None:
    again = "an actor `Engine` was restarted 7 times and is not ready"
    processes = stacks.read((DUMPS / "ray_engine_restarts_for_ever.txt").read_text())
    found = explain.explain(View(processes, ray={"restarting": [again], "have": "a node has at most 1 CPU"}))
    assert (found.kind, found.why, [one.pid for one in found.named]) == ("ray", "", [100])
    assert found.what == f"{again}, and pid 100 on `n1` waits for a result of Ray"
    assert "logs/<node>/ray" in found.fix


def test_a_line_that_calls_the_function_is_interrupted_by_none() -> None:
    text = (DUMPS / "handler_takes_held_lock.txt").read_text().replace("self.rewards.sort()", "self.report()")
    found = explain.explain(View(stacks.read(text)))
    said = "it holds one of that name itself, at Metrics.record (/r/handler_takes_held_lock.py:25)"
    assert found.what.endswith(said)


def test_a_process_that_is_seen_to_hold_a_managers_lock_is_the_cause() -> None:
    text = (DUMPS / "manager_lock_of_ended_worker.txt").read_text() + (
        '\n# jobspec: {"calls": {"110": "clock_nanosleep"}, "node": "n1", "parent": 100, "state": "S"}\n'
        'Process 110: python -u /r/score.py\nThread 110 (idle): "MainThread"\n'
        "    score (/r/score.py:9)  | time.sleep(3600)  |held lock\n"
    )
    found = explain.explain(View(stacks.read(text)))
    assert (found.kind, [one.pid for one in found.named]) == ("sleep", [110])
    assert "while pid 100 on `n1` waits for a lock of a multiprocessing manager" in found.what


def test_a_forked_child_does_nothing_at_its_parents_lines() -> None:
    text = (
        'Process 7: python a.py\nThread 7 (idle): "MainThread"\n    {}'
        "    Popen._launch (/usr/lib/python3.11/multiprocessing/popen_fork.py:71)\n    collect (/r/a.py:24)\n"
    )
    ends, works = (
        stacks.read(text.format(inner))[0].threads[0]
        for inner in (
            "_exit_function (/usr/lib/python3.11/multiprocessing/util.py:357)\n",
            "score (/r/a.py:9)\n",
        )
    )
    assert waits.own_frame(ends) is None
    assert str(waits.own_frame(works)) == "score (/r/a.py:9)"


def read(name: str) -> explain.Explanation:
    return explain.explain(View(stacks.read((DUMPS / f"{name}.txt").read_text())))


def test_who_has_a_copy_of_the_other_end_is_not_waited_for() -> None:
    """The process that served the pipe was killed, and its siblings wait at pipes of their own."""
    found = read("env_killed_pipe_in_sibling")
    assert "; the other end is open in pid 101 (`" in found.what
    assert "waits for one of" not in found.what
    assert "each seems to wait" not in found.what


def test_a_send_and_a_recv_that_do_not_meet() -> None:
    found = read("tag_off_by_one")
    assert (found.kind, [one.rank for one in found.named]) == ("collective-absent", ["0", "1"])
    assert found.why.startswith("inferred from their lines: these two are partners")
    assert "tag" in found.fix


def test_partners_are_those_whose_lines_name_each_other() -> None:
    """Rank 0 receives from rank 2, which is in the barrier: what rank 1 sends is not what it waits for."""
    text = (DUMPS / "tag_off_by_one.txt").read_text().replace("dst=1", "dst=2")
    found = explain.explain(View(stacks.read(text)))
    assert (found.kind, found.named) == ("collective-order", ())


def test_one_rank_in_send_does_not_come_to_the_collective_of_the_others() -> None:
    text = (DUMPS / "tag_off_by_one.txt").read_text()
    sends, _, waits_in_barrier = text.split("\n\n")[:3]
    other = waits_in_barrier.replace("102", "101").replace('"rank": "2"', '"rank": "1"')
    found = explain.explain(View(stacks.read("\n\n".join((sends, other, waits_in_barrier)))))
    assert (found.kind, [one.rank for one in found.named]) == ("collective-absent", ["0"])
    assert "may wait for it, unless their group leaves it out" in found.why


def test_a_locked_file_that_several_have_open() -> None:
    rows = '[[7, "python a.py", ""], [8, "python a.py", ""]]'
    call = '"calls": {"7": "flock on /r/a.lock of ext4"}'
    text = (
        f'# jobspec: {{"behind": {{"7": {rows}}}, {call}, "node": "n1", "state": "S"}}\n'
        'Process 7: python a.py\nThread 7 (idle): "MainThread"\n'
        "    take (/r/a.py:9)  | fcntl.flock(file, fcntl.LOCK_EX)\n"
    )
    found = explain.explain(View(stacks.read(text)))
    assert "; the locked file is open in pid 7 itself and pid 8 (`python a.py`)" in found.what


def test_what_differs_between_the_samples_is_named() -> None:
    """A timer that is started anew again and again is another thread each time."""
    text = 'Process 7: python a.py\nThread 7 (idle): "MainThread"\n    wait (/r/a.py:9)\n'
    timer = 'Thread {0} (idle): "Thread-{0}"\n    run (/r/a.py:{1})\n'
    first = stacks.read(text + timer.format(8, 3))
    assert changes(View(first, first)) == ""
    assert changes(View(first, stacks.read(text + timer.format(9, 3)))) == "threads of pid 7"
    assert changes(View(first, stacks.read(text + timer.format(8, 4)))) == "frames of pid 7"
    task = 'Thread 0 (idle): "task Task-{}"\n    call (/r/a.py:{})\n'
    asks = stacks.read(text + task.format(1, 5))
    assert changes(View(asks, stacks.read(text + task.format(2, 5)))) == ""
    assert changes(View(asks, stacks.read(text + task.format(2, 6)))) == "coroutines of pid 7"
    more = stacks.read(text + timer.format(8, 3) + text.replace("Process 7", "Process 6"))
    assert changes(View(first, more)) == "processes pid 6"


def test_the_advice_for_a_sleep_supposes_no_loop() -> None:
    assert "if a loop is around it" in DOES[kinds.SLEEP][1]
