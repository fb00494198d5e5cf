"""Recorded dumps of stalls, one for each kind of wait that was once explained wrongly, with other paths."""

from __future__ import annotations

from pathlib import Path

import pytest

from jobspec.runtime.head.dumps import plain
from jobspec.runtime.stalls import explain, stacks
from jobspec.runtime.stalls.cohorts import View

DUMPS = Path(__file__).parents[2] / "fixtures" / "stalls" / "kinds"


@pytest.mark.parametrize(
    ("name", "kind", "pids", "rank", "function", "says"),
    [
        ("ddp_one_batch_less", "collective-order", [102], "2", "end_epoch",
         "ranks 0-1 wait in `backward()`, where the ranks all_reduce their gradients at train_epoch"),
        ("dedup_table_full", "busy", [102], "0", "insert", "pid 102 on `n1` computes at insert"),
        ("pool_shutdown_heartbeat", "join", [100], "0", "heartbeat",
         "thread `ThreadPoolExecutor-0_0` waits for a lock at heartbeat"),
        ("ray_sandbox_input", "pipe", [101], "", "run_sandbox",
         "the other end is pid 102 on `n1`, which waits at a pipe or a FIFO at <module> (<string>:1)"
         ": each waits for the other, while pid 100 on `n1` waits for a result of Ray"),
        ("server_asks_itself", "network", [101], "0", "Handler.score",
         "; the other end is the process itself, while pid 100"),
        ("task_done_missing", "queue", [100], "0", "score_all",
         "waits until `task_done()` is said of each item of its queue at score_all"),
        ("setter_cancelled", "event-loop", [100], "0", "generate", "waits in its event loop at generate"),
        ("sqlite_open_transaction", "sleep", [101], "1", "upload",
         "rank 1 on `n1`, pid 101 sleeps at upload (/r/sqlite_open_transaction.py:22): `time.sleep(3600)`, "
         "while rank 0 on `n1`, pid 100 waits for a lock on a file at log_metrics"),
        ("producer_ended_early", "queue", [102], "2", "next_batch",
         "no other process of the run has the other end"),
        ("manager_queue", "sleep", [102], "0", "score", "while pid 100 on `n1` waits at a queue or a pipe"),
        ("env_pipe", "queue", [100], "0", "step", "at environment (/r/own_env_pipe.py:13)"),
        ("server_thread", "network", [100], "0", "Handler.do_GET", "waits for a lock at Handler.do_GET"),
        ("mp_lock", "sleep", [101], "0", "upload", "while pid 100 on `n1` waits for a lock at write"),
        ("to_thread", "sleep", [100], "0", "score", "sleeps at score"),
        ("torchrun", "sleep", [103], "2", "next_batch", "while ranks 0-1 wait in the collective"),
        ("forked_ranks", "sleep", [103], "", "evaluate", "while pid 101 on `n1`; pid 102 on `n1` wait"),
        ("http_pool", "lock", [101], "1", "compact",
         "which thread `Thread-1 (compact)` holds at compact (/r/own_http_pool.py:32), while rank 0 on"),
        ("threads_queue", "join", [100], "0", "produce", "waits for room in a full queue at produce"),
        ("grandchild_pipe", "subprocess", [100], "0", "run_tool", "(`sleep 3600`, clock_nanosleep)"),
        ("debugger", "pipe", [101], "1", "compute_advantages",
         "rank 1 on `n1`, pid 101 waits for input (a debugger) at compute_advantages"),
        ("build_lock", "file-lock", [101], "1", "load_kernel",
         "pid 101 waits for the lock file of a kernel's build (`FileBaton`) at load_kernel "
         "(/r/stale_build_lock.py:34): `baton.wait()`; no process that was seen has such a file open, while"),
        ("loader_pipe", "pipe", [101], "0", "read_shard",
         "while pid 100 on `n1` waits for a worker of its data loader at epoch"),
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
