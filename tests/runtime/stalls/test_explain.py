"""What dumps say together: who differs, and that nobody is named where nothing shows it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from jobspec.runtime.stalls import blame, cohorts, explain, kinds, stacks, waits
from jobspec.runtime.stalls.cohorts import View
from jobspec.runtime.stalls.stacks import Frame, Process, Thread

DUMPS = Path(__file__).parents[2] / "fixtures" / "stalls"


def of(folder: str) -> blame.Explanation:
    files = sorted((DUMPS / folder).glob("*.txt"))
    return explain.explain(View([one for file in files for one in stacks.read(file.read_text(), file.name)]))


@pytest.mark.parametrize("folder", ["absent", "absent_faulthandler"])
def test_the_rank_that_does_not_come_is_named(folder: str) -> None:
    found = of(folder)
    assert [process.rank for process in found.named] == ["2"]
    assert found.frame is not None
    assert (found.frame.function, found.frame.line) == ("evaluate", 14)
    assert "ranks 0-1, 3 wait in the collective `all_reduce`" in found.what
    assert found.inferred  # a stack does not say that the rank sleeps


def test_ranks_in_different_collectives() -> None:
    found = of("order")
    assert found.kind == "collective-order"
    assert not found.blocked
    assert [process.rank for process in found.named] == ["1"]


def test_stacks_that_do_not_differ_name_nobody() -> None:
    found = of("size")
    assert (found.kind, found.named, found.blocked, found.inferred) == ("collective-all", (), True, True)


def process(pid: int, *frames: Frame, rank: str = "", **facts: object) -> Process:
    command = str(facts.pop("command", "python train.py"))
    return Process(pid, command, rank, "n1", (Thread("MainThread", frames, pid, False),), facts)


REDUCE = (
    Frame("all_reduce", "/v/lib/python3.11/site-packages/torch/distributed/distributed_c10d.py", 3252),
    Frame("step", "/r/train.py", 20),
)
RAY_GET = (
    Frame("get", "/v/lib/python3.11/site-packages/ray/_private/worker.py", 1),
    Frame("fit", "/r/d.py", 5),
)


def test_one_rank_against_one_in_different_collectives_blames_none() -> None:
    barrier = (Frame("barrier", REDUCE[0].file, 9), Frame("save", "/r/train.py", 30))
    found = explain.explain(View([process(1, *REDUCE, rank="0"), process(2, *barrier, rank="1")]))
    assert found.kind == "collective-order"
    assert found.named == ()


def test_a_stopped_process_is_certain() -> None:
    found = explain.explain(View([process(1, *REDUCE, rank="0"), process(2, *REDUCE, rank="1", state="T")]))
    assert (found.kind, found.inferred, [p.rank for p in found.named]) == ("stopped", False, ["1"])


def test_a_rank_without_a_process_only_where_all_nodes_answered() -> None:
    alive = [process(1, *REDUCE, rank="0", world="3"), process(2, *REDUCE, rank="2", world="3")]
    assert explain.explain(View(alive)).kind == "collective-all"
    found = explain.explain(View(alive, complete=True))
    assert found.kind == "rank-gone"
    assert found.what.startswith("rank 1 has no process that is seen on any node")


def test_the_worker_that_a_ray_get_waits_for() -> None:
    driver = process(1, *RAY_GET)
    busy = process(2, Frame("score", "/r/reward.py", 8), command="ray::Reward.score")
    loop = (
        Frame("main_loop", "/v/lib/python3.11/site-packages/ray/_private/worker.py", 1),
        Frame("<module>", "/v/lib/python3.11/site-packages/ray/_private/workers/default_worker.py", 323),
    )
    idle = process(3, *loop, command="ray::IDLE")
    found = explain.explain(View([driver, busy, idle]))
    assert [p.pid for p in found.named] == [2]
    assert str(found.frame) == "score (/r/reward.py:8)"


def test_resources_that_do_not_exist() -> None:
    found = explain.explain(
        View([process(1, *RAY_GET)], ray={"pending": ["a placement group (PACK) of {CPU: 8}"]})
    )
    assert found.kind == "ray-demand"
    assert "a placement group (PACK) of {CPU: 8}" in found.what


@pytest.mark.parametrize(("rows", "kind"), [(1, "sleep"), (2, "ray-demand")])
def test_an_actor_whose_constructor_runs_has_its_resources(rows: int, kind: str) -> None:
    begun = process(
        2, Frame("__init__", "/r/engine.py", 4), command="ray::Engine.__init__", calls={"2": "nanosleep"}
    )
    pending = ["an actor `Engine` (PENDING_CREATION)"] * rows
    found = explain.explain(View([process(1, *RAY_GET), begun], ray={"pending": pending}))
    assert found.kind == kind


def test_rays_own_connections_tell_for_whom_nobody_waits() -> None:
    """A task reads from a pair of sockets; that it is connected to the driver, too, means nothing."""
    here, there = ["10.0.0.1:5", "10.0.0.1:6", "ESTABLISHED", 0, 0, 0], "recvfrom on socket"
    back = [here[1], here[0], *here[2:]]
    for call in (there, "poll"):
        task = process(
            2, Frame("recv_into", "/usr/lib/python3.11/socket.py", 1), Frame("grade", "/r/d.py", 9),
            command="ray::grade", calls={"2": call}, sockets=[here],
        )  # fmt: skip
        found = explain.explain(View([process(1, *RAY_GET, sockets=[back]), task]))
        assert (found.kind, [one.pid for one in found.named]) == ("network", [2])
        assert "each" not in found.what


def test_who_has_locked_the_only_lock_file() -> None:
    tries = Frame("_poll_until_acquired", "/v/lib/python3.11/site-packages/filelock/_core/_acquire.py", 9)
    waiting = process(1, tries, Frame("load", "/r/data.py", 7))
    holder = process(2, Frame("fetch", "/r/hub.py", 8), calls={"2": "nanosleep"}, locked=["/c/hub.lock"])
    found = explain.explain(View([waiting, holder]))
    assert (found.kind, [one.pid for one in found.named]) == ("sleep", [2])
    other = process(3, Frame("build", "/r/x.py", 9), calls={"3": "nanosleep"}, locked=["/c/x.lock"])
    assert explain.explain(View([waiting, holder, other])).kind == "several"


ENGINE = (
    Frame("main_loop", "/v/lib/python3.11/site-packages/ray/_private/worker.py", 1),
    Frame("<module>", "/v/lib/python3.11/site-packages/ray/_private/workers/default_worker.py", 323),
)
QUEUED = {"queued": ["1 task `score` of {CPU: 1} (actors hold: `Engine` {CPU: 8})"]}


def test_a_task_for_which_idle_actors_leave_no_room() -> None:
    people = [process(1, *RAY_GET), process(2, *ENGINE, command="ray::Engine")]
    found = explain.explain(View(people, ray=QUEUED, complete=True))
    assert (found.kind, [one.pid for one in found.named], found.inferred) == ("ray-demand", [1], True)
    assert found.what.startswith(
        "no node has room for 1 task `score` of {CPU: 1} (actors hold: `Engine` {CPU: 8}), "
        "no process of Ray is seen at work, and pid 1 on `n1` waits for a result of Ray"
    )
    trainer = process(3, *RAY_GET, command="ray::Trainer.fit")
    found = explain.explain(View([*people, trainer], ray=QUEUED, complete=True))
    assert [one.pid for one in found.named] == [3]


def test_a_task_that_waits_for_its_turn_is_no_cause() -> None:
    """Another one works, or may work on a node that gave no dump."""
    driver, busy = process(1, *RAY_GET), process(2, Frame("score", "/r/s.py", 8), command="ray::score")
    found = explain.explain(View([driver, busy], ray=QUEUED, complete=True))
    assert (found.kind == "ray-demand", [one.pid for one in found.named]) == (False, [2])
    assert explain.explain(View([driver], ray=QUEUED)).kind == "ray"


WAITS_FOR_BUILD = (
    Frame("FileBaton.wait", "/v/lib/python3.11/site-packages/torch/utils/file_baton.py", 50),
    Frame("load", "/r/kernels.py", 3),
)


def test_the_rank_that_builds_what_another_one_waits_for() -> None:
    waiting = process(1, *WAITS_FOR_BUILD, rank="1")
    wait = Frame("Popen.wait", "/usr/lib/python3.11/subprocess.py", 1264)
    builder = process(2, wait, Frame("build", "/r/kernels.py", 9), rank="0", batons=["/c/x/lock"])
    found = explain.explain(View([waiting, builder, process(3, *REDUCE, rank="2")]))
    assert found.kind == "subprocess"
    assert [one.rank for one in found.named] == ["0"]
    far = replace(builder, node="n2")
    assert "; such a file is open in rank 0 on `n2`" in blame.blame("", [waiting], View([waiting, far])).what


@pytest.mark.parametrize(
    ("file", "function"),
    [
        ("/usr/lib/python3.11/pdb.py", "Pdb.interaction"),
        ("/v/lib/python3.11/site-packages/IPython/terminal/debugger.py", "TerminalPdb.cmdloop"),
        ("/v/lib/python3.11/site-packages/ray/util/rpdb.py", "_RemotePdb.listen"),
        ("/v/lib/python3.11/site-packages/debugpy/server/api.py", "wait_for_client"),
    ],
)
def test_the_prompt_of_a_debugger(file: str, function: str) -> None:
    """Its children are not what it waits for."""
    accept = Frame("socket.accept", "/usr/lib/python3.11/socket.py", 294)
    stands = process(1, accept, Frame(function, file, 1), Frame("step", "/r/t.py", 7), rank="0")
    child = process(2, Frame("pump", "/r/t.py", 20), parent=1, calls={"2": "clock_nanosleep"})
    found = explain.explain(View([stands, child, process(3, *REDUCE, rank="1")]))
    assert [one.pid for one in found.named] == [1]
    said = "pid 1 waits for input (a debugger or an interactive console) at step (/r/t.py:7), while rank 1"
    assert said in found.what
    assert not found.blocked


def test_a_prompt_at_a_terminal() -> None:
    asks = process(1, Frame("agree", "/r/t.py", 7), calls={"1": "read on /dev/pts/2 of devpts"})
    found = explain.explain(View([asks]))
    assert "pid 1 on `n1` waits for input from a terminal at agree (/r/t.py:7)" in found.what


def test_a_rank_that_works_is_late_and_not_stuck() -> None:
    before = process(2, Frame("evaluate", "/r/e.py", 1), rank="1", cpu_s=0.0, time=0.0)
    now = process(2, Frame("evaluate", "/r/e.py", 2), rank="1", cpu_s=29.0, time=30.0)
    waits = process(1, *REDUCE, rank="0", cpu_s=0.0, time=0.0)
    found = explain.explain(View([waits, before], [waits, now]))
    assert "rank 1 on `n1`, pid 2 moves between the two samples" in found.what
    assert found.frozen is False


def test_a_rank_without_a_stack_is_not_blamed() -> None:
    seen = [process(1, *REDUCE, rank="0"), process(2, *REDUCE, rank="1")]
    found = explain.explain(View([*seen, Process(3, "python train.py", "2", "n1", facts={"state": "S"})]))
    assert (found.kind, found.named) == ("collective-all", ())
    assert found.why.endswith("no stack was taken of rank 2 on `n1`, pid 3")


def test_a_rank_that_waits_for_its_gpu_waits_for_the_others() -> None:
    line = Frame("step", "/r/train.py", 30, "print(loss.item())")
    late = process(2, Frame("evaluate", "/r/e.py", 1, "time.sleep(9)"), rank="1")
    found = explain.explain(View([process(1, line, rank="0"), late]))
    assert [one.rank for one in found.named] == ["1"]
    assert "while rank 0 on `n1`, pid 1 waits for its GPU at step (/r/train.py:30)" in found.what


def test_what_a_process_waits_for_is_found_once() -> None:
    """512 processes that wait for Ray took 105 s, 2 s since."""
    one = process(1, *RAY_GET)
    assert waits.of(one) is waits.of(one)
    assert waits.of(replace(one, facts={"state": "T"})).kind == kinds.STOPPED


def test_nothing_to_say() -> None:
    assert explain.explain(View([])).kind == "unknown"


def test_spans() -> None:
    assert cohorts.spans([0, 1, 2, 5, 7, 8]) == "0-2, 5, 7-8"


def test_a_network_over_which_nothing_arrives() -> None:
    """Three nodes; whatever goes to the third is sent again and again."""
    near, far, third = "10.0.0.1:43015", "10.0.0.3:39790", "10.0.0.2:41000"
    rows = {
        1: [[near, far, "ESTABLISHED", 65824, 0, 6]],
        2: [[third, "10.0.0.3:39791", "ESTABLISHED", 10, 0, 5]],
        3: [[far, near, "ESTABLISHED", 0, 0, 0], ["10.0.0.3:39791", third, "ESTABLISHED", 0, 0, 0]],
    }
    every = [
        replace(process(pid, *REDUCE, rank=str(pid), sockets=sockets), node=f"n{pid}")
        for pid, sockets in rows.items()
    ]
    found = explain.explain(View(every))
    assert (found.kind, found.node, found.named, found.blocked) == ("network-half-open", "n3", (), True)
    assert found.what.startswith(
        f"65824 bytes from rank 1 on `n1`, pid 1 ({near}) to rank 3 on `n3`, pid 3"
        f" ({far}) are not acknowledged by that host, though sent 6 times again; so it is with 1 further"
    )
    two = explain.explain(View([every[0], every[2]]))
    assert (two.kind, two.node) == ("network-half-open", "")  # either may be cut off
    lost_once = replace(every[0], facts={"sockets": [[near, far, "ESTABLISHED", 9, 0, 1]]})
    assert explain.explain(View([lost_once, every[2]])).kind == "collective-all"


def test_of_several_single_ranks_the_one_that_came_another_way() -> None:
    def at(pid: int, line: int, way: str, op: str = "all_reduce") -> Process:
        return process(pid, Frame(op, REDUCE[0].file, 9), Frame(way, "/r/train.py", line), rank=str(pid))

    every = [at(0, 20, "sync", "broadcast"), at(1, 21, "sync"), at(2, 26, "norm"), at(3, 21, "sync")]
    found = explain.explain(View(every))
    assert (found.kind, [one.rank for one in found.named]) == ("collective-order", ["2"])
    same = [at(0, 20, "sync", "broadcast"), at(1, 21, "sync"), at(2, 26, "sync"), at(3, 21, "sync")]
    assert explain.explain(View(same)).named == ()


def test_a_read_that_its_file_system_does_not_answer() -> None:
    call = {"9": "read on /mnt/shard.bin of fuse.s3fs"}
    reader = process(9, Frame("load", "/r/data.py", 3, "file.read()"), rank="1", calls=call)
    found = explain.explain(View([process(1, *REDUCE, rank="0"), reader]))
    assert (found.kind, found.blocked, found.inferred) == ("disk", True, False)
    assert "waits in the kernel (read on /mnt/shard.bin of fuse.s3fs) at load" in found.what


def test_an_open_that_its_file_system_does_not_answer() -> None:
    calls = {"9": "openat in request_wait_answer of FUSE"}
    opener = process(9, Frame("load", "/r/data.py", 3, "with open(path) as file:"), rank="1", calls=calls)
    found = explain.explain(View([process(1, *REDUCE, rank="0"), opener]))
    assert (found.kind, [one.rank for one in found.named]) == ("disk", ["1"])


def test_a_key_of_a_store() -> None:
    line = Frame("wait_for_policy", "/r/train.py", 3, 'store.wait(["policy/7"])')
    found = explain.explain(View([process(1, *REDUCE, rank="0"), process(2, line, rank="1")]))
    assert (found.kind, found.why) == ("store", "inferred from its stack and the line at which it stands")
    assert "rank 1 on `n1`, pid 2 waits for a key in a store of torch.distributed at" in found.what


def test_a_program_that_is_no_python_has_its_name() -> None:
    raylet = Process(7, "/x/ray/core/src/ray/raylet/raylet --port=1", "", "n1", facts={"state": "T"})
    assert explain.explain(View([process(1, *RAY_GET), raylet])).what.startswith(
        "pid 7 (`raylet`) on `n1` is stop"
    )


def test_a_hook_in_a_thread_of_autograd() -> None:
    """C++ has started that thread: it has no frame of `threading`; the main thread waits for it."""
    library = "/v/lib/python3.11/site-packages/torch"
    engine = (
        Frame("_engine_run_backward", f"{library}/autograd/graph.py", 979),
        Frame("step", "/r/train.py", 20, "loss.backward()"),
    )
    waiting = process(1, *engine, rank="0", calls={"1": "futex"})
    hook = (Frame("log_norm", "/r/hooks.py", 7, "time.sleep(60)"),)
    thread = Thread("pt_autograd_0", hook, 22, False)
    hooked = process(2, *engine, rank="1", calls={"2": "futex", "22": "clock_nanosleep"})
    found = explain.explain(View([waiting, replace(hooked, threads=(*hooked.threads, thread))]))
    assert (found.kind, [one.rank for one in found.named]) == ("sleep", ["1"])
    assert "at log_norm (/r/hooks.py:7)" in found.what
    assert "while rank 0 on `n1`, pid 1 waits in `backward()`" in found.what


def test_one_program_alone_in_backward_waits_for_no_rank() -> None:
    engine = Frame("_engine_run_backward", "/v/lib/python3.11/site-packages/torch/autograd/graph.py", 979)
    alone = process(1, engine, Frame("step", "/r/train.py", 20, "loss.backward()"), world="1")
    assert waits.of(alone).kind not in kinds.ON_RANKS


def test_a_rank_that_waits_for_the_lock_of_another_is_not_first() -> None:
    """Whichever of the two has the lower number."""
    for waiter, holder in (("0", "1"), ("1", "0")):
        line = Frame("fill", "/r/data.py", 8, "fcntl.flock(file, fcntl.LOCK_EX)")
        calls = {"5": "flock on /r/lock of ext4"}
        late = process(5, line, rank=waiter, calls=calls, behind={"5": [[6, "python", "clock_nanosleep"]]})
        slow = process(6, Frame("load", "/r/data.py", 3, "time.sleep(9)"), rank=holder,
                       calls={"6": "clock_nanosleep"})  # fmt: skip
        found = explain.explain(View([process(4, *REDUCE, rank="2"), late, slow]))
        assert (found.kind, [one.rank for one in found.named]) == ("sleep", [holder])
