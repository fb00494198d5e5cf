"""Recorded dumps in which a place says little alone: helpers, ranks that are all alike, pipes."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from jobspec.runtime.stalls import explain, stacks, waits
from jobspec.runtime.stalls.cohorts import View
from jobspec.runtime.stalls.phrases import phrase
from jobspec.runtime.stalls.stacks import Frame, Process, Thread

DUMPS = Path(__file__).parents[2] / "fixtures" / "stalls" / "kinds"


def recorded(name: str) -> list[Process]:
    return stacks.read((DUMPS / f"{name}.txt").read_text())


@pytest.mark.parametrize(
    ("name", "kind", "pids", "says"),
    [
        ("checkpoint_locks_two_orders", "file-lock", [100, 101],
         "called by rank 0 from save_weights (/r/checkpoint_locks_two_orders.py:37) and by rank 1 from "
         "prune_old (/r/checkpoint_locks_two_orders.py:45): each waits for the other"),
        ("rwlock_nested_read", "lock", [100],
         "called from <module> (/r/rwlock_nested_read.py:59); thread `rollout` waits for an event, a "
         "condition or a barrier at WeightsLock.read (/r/rwlock_nested_read.py:23)"),
        ("weight_group_one_too_many", "store", [],
         "in range(trainers + engines + references)])`; all ranks of the run do so"),
        ("vec_env_ignores_command", "pipe", [101],
         "waits for a message at a pipe or connection of `multiprocessing` at Env.call"),
        ("pipe_worker_returned", "pipe", [101],
         "`return pipe.recv()`; no other process that was seen has the other end, while rank 0"),
        ("handler_died_connection_kept", "network", [101],
         "127.0.0.1:39463 ESTABLISHED at ask_reward (/r/handler_died_connection_kept.py:37)"),
        ("judge_inside_semaphore", "event-loop", [100], "waits in its event loop for a lock or a semaph"),
        ("imap_of_waiting_prompts", "queue", [100],
         "its tasks come from thread `Thread-2 (_handle_tasks)`, which waits at a queue of its own proc"),
        ("executor_at_exit", "queue", [100], "; its main thread has come to its end, and"),
        ("upload_slot_never_free", "future", [101],
         "thread `saver_0` waits for a lock or a semaphore at upload_shard"),
        ("async_tests_fill_stdout", "subprocess", [100],
         "it has started pid 102 (`seq 1000000`, write on pipe), where the other end is pid 100 itself"),
        ("eval_script_waits_for_lock", "subprocess", [100], "where the lock is held by rank 2, pid 102"),
    ],
)  # fmt: skip
def test_a_recorded_stall(name: str, kind: str, pids: list[int], says: str) -> None:
    found = explain.explain(View(recorded(name)))
    assert (found.kind, [one.pid for one in found.named]) == (kind, pids)
    assert says in found.what


def test_ranks_in_one_helper_of_different_callers() -> None:
    """Each has come to the same line of the helper from another one: so their stacks do differ."""

    def rank(number: int, caller: str, line: int) -> Process:
        frames = (
            Frame("all_reduce", "/usr/lib/python3.11/site-packages/torch/distributed/distributed_c10d.py", 9),
            Frame("mean", "/r/train.py", 5, "dist.all_reduce(value)"),
            Frame(caller, "/r/train.py", line),
        )
        return Process(100 + number, "python", str(number), "n1", (Thread("MainThread", frames, 1),))

    alike = [rank(number, "update", 20) for number in range(3)]
    assert explain.explain(View(alike)).kind == "collective-all"
    found = explain.explain(View([*alike[:2], rank(2, "evaluate", 30)]))
    assert found.kind == "collective-order"
    assert [one.rank for one in found.named] == ["2"]
    assert "update (/r/train.py:20)" in found.what
    assert "evaluate (/r/train.py:30)" in found.what


def test_all_ranks_alike_but_in_a_circle_are_named() -> None:
    """Who waits for one of the others is no stranger's victim."""
    found = explain.explain(View(recorded("both_send")))
    assert len(found.named) == 2
    assert "all ranks of the run do so" not in found.what


def test_a_ray_queue_is_none_between_processes() -> None:
    frames = (
        Frame("get", "/x/site-packages/ray/_private/worker.py", 2),
        Frame("Queue.get", "/x/site-packages/ray/util/queue.py", 3),
        Frame("next_rollout", "/r/train.py", 5, "rollouts.get()"),
    )
    wait = waits.of(Process(1, "python", threads=(Thread("MainThread", frames, 1),)))
    assert phrase(wait)[0] == "waits at a queue of Ray (`ray.util.queue`)"
    full = replace(frames[1], function="Queue.put")
    wait = waits.of(Process(1, "python", threads=(Thread("MainThread", (frames[0], full, frames[2]), 1),)))
    assert phrase(wait)[0] == "waits at a queue of Ray (`ray.util.queue`)"


def test_a_torn_stack_of_who_computes_is_taken_from_the_first_sample() -> None:
    def sample(*frames: Frame) -> list[Process]:
        return [Process(1, "python", "0", "n1", (Thread("MainThread", frames, 1, True),))]

    inner = Frame(
        "RandomSampler.__iter__", "/usr/lib/python3.11/site-packages/torch/utils/data/sampler.py", 181
    )
    first = sample(inner, Frame("endless_prompts", "/r/train.py", 20))
    found = explain.explain(View(first, sample(inner)))
    assert "uses the CPU at endless_prompts (/r/train.py:20)" in found.what
    assert found.frozen is False
