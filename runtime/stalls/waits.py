"""What a process waits for, told from the frames of its working thread and, in own dumps, its system call.

Rules alone: a frame of a library that waits says for what. Where only the system call tells, it is inferred.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import Iterator, List, Optional, Pattern, Tuple

from jobspec.runtime.stalls import calls, kinds, texts
from jobspec.runtime.stalls.libraries import is_library
from jobspec.runtime.stalls.stacks import MAIN, Frame, Process, Thread

# Debuggers, at whose prompt somebody is waited for; those of Ray wait for a connection first.
_PROMPTS = r"(?:pdb|cmd|code)\.py|IPython/\S+\.py|ray/util/(?:rpdb|debugpy)\.py|debugpy/\S+\.py"
_RULES: Tuple[Tuple[str, Pattern[str], Pattern[str]], ...] = tuple(
    (kind, re.compile(rf"(?:^|/)(?:{file})$"), re.compile(rf"(?:{function})$"))
    for kind, file, function in (
        (kinds.RENDEZVOUS, r"torch/distributed/\S+\.py",
         r"init_process_group|_new_process_group_helper|next_rendezvous|_env_rendezvous_handler|_create_c10d_store"
         r"|_store_based_barrier|rendezvous"),
        (kinds.COLLECTIVE, r"torch/distributed/\S+\.py", texts.COLLECTIVES),
        (kinds.COLLECTIVE, r"torch/nn/parallel/distributed\.py|torch/distributed/utils\.py",
         r"_sync_\w+|_verify_param_shape_across_processes|_\w+_broadcast_coalesced|_pre_forward"),
        (kinds.COLLECTIVE, r"\S*(?:pynccl|custom_all_reduce|device_communicators/\w+)\.py",
         texts.COLLECTIVES),
        (kinds.DEVICE, r"torch/cuda/(?:__init__|streams)\.py", r"synchronize|wait"),
        (kinds.PLACEMENT, r"ray/util/placement_group\.py", r"wait|ready|_call_placement_group_ready"),
        (kinds.RAY, r"ray/_private/worker\.py", r"get|get_objects|wait"),
        (kinds.LOADER, r"torch/utils/data/dataloader\.py",
         r"_try_get_data|_get_data|_next_data|_shutdown_workers"),
        (kinds.FILE_LOCK, r"torch/utils/file_baton\.py", r"wait"),
        (kinds.FILE_LOCK, r"filelock/\S+\.py", r"_?acquire|__enter__|_poll_until_acquired"),
        (kinds.PIPE, _PROMPTS, r"interaction|interact|_?cmdloop|listen|set_trace|wait_for_client"
         r"|_?do_wait_suspend"),
        (kinds.CHILD, r"subprocess\.py|multiprocessing/popen_\w+\.py",
         r"wait|_wait|_try_wait|communicate|poll|_communicate"),
        (kinds.IDLE, r"torch/distributed/rpc/api\.py", r"shutdown|_wait_all_workers"),
        (kinds.FUTURE, r"torch/distributed/rpc/api\.py|torch/futures/__init__\.py",
         r"rpc_sync|wait\w*|value"),
        (kinds.IDLE, r"socket\.py|socketserver\.py|grpc/_server\.py",
         r"accept|serve_forever|wait_for_termination"),
        (kinds.JOIN, r"multiprocessing/(?:pool|process)\.py", r"join"),
        (kinds.QUEUE, r"queue\.py|multiprocessing/(?:queues|pool)\.py", r"get|put|join|next|wait|poll"),
        (kinds.PIPE, r"multiprocessing/connection\.py",
         r"\w+_challenge|recv\w*|_recv\w*|_?send\w*|wait|poll"),
        (kinds.FUTURE, r"concurrent/futures/\w+\.py", r"result|exception|wait|as_completed"),
        (kinds.JOIN, r"threading\.py", r"join|_wait_for_tstate_lock|_shutdown"),
        (kinds.LOCK, r"threading\.py|multiprocessing/synchronize\.py", r"wait|acquire|__enter__|wait_for"),
        (kinds.LOOP, r"asyncio/(?:base_events|runners)\.py|uvloop/\S+",
         r"run_forever|run_until_complete|_run_once|run"),
        (kinds.NETWORK, r"socket\.py|ssl\.py|http/client\.py",
         r"readinto|recv\w*|read\w*|accept|connect|create_connection|send\w*"),
        (kinds.NETWORK, r"zmq/\S+", r"recv\w*|send\w*|poll"),
        (kinds.NETWORK, r"urllib3/connectionpool\.py|httpcore/\S+", r"_get_conn|wait_for_connection"),
        (kinds.NETWORK, r"grpc/_channel\.py", r"_blocking|__call__|_next|result|wait"),
    )
)  # fmt: skip
_TASK_RULES = tuple(
    (kind, re.compile(rf"(?:^|/)(?:{file})"), frozenset(functions))
    for kind, file, functions in (
        (kinds.SLEEP, r"asyncio/tasks\.py", ("sleep",)),
        (kinds.QUEUE, r"asyncio/queues\.py", ("get", "put", "join")),
        (kinds.CHILD, r"asyncio/subprocess\.py", ()),
        (
            kinds.NETWORK,
            r"asyncio/streams\.py|aiohttp/(?:client|web_ws)|httpcore/|httpx/|websockets/|grpc/aio/",
            (),
        ),
        (kinds.LOOP, r"asyncio/locks\.py", ()),
    )
)
_OF_PIPES = (kinds.CONNECTION, kinds.FULL, kinds.HANDSHAKE)
_OPS_OF_QUEUE = {"join": kinds.UNDONE, "put": kinds.FULL, "get": kinds.INNER}
_OPS_OF_LOCK = {
    "acquire": kinds.TURN,
    "__aenter__": kinds.TURN,
    "wait": kinds.SIGNAL,
    "wait_for": kinds.SIGNAL,
}
# Where a client of HTTP waits until one of its own connections is free.
_POOLS = re.compile(
    r"aiohttp/connector\.py:_wait_for_available_connection|urllib3/connectionpool\.py:_get_conn"
    r"|httpcore/\S+:wait_for_connection"
)
# What exactly is waited for, by the frame that says the kind.
_FRAME_OPS: Tuple[Tuple[str, Pattern[str], str], ...] = (
    (kinds.LOCK, re.compile(r":wait(?:_for)?$"), kinds.SIGNAL),
    (kinds.QUEUE, re.compile(r"multiprocessing/pool\.py:"), kinds.RESULTS),
    (kinds.PIPE, re.compile(r":\w+_challenge$"), kinds.HANDSHAKE),
    (kinds.PIPE, re.compile(r"multiprocessing/connection\.py:_?send"), kinds.FULL),
    (kinds.PIPE, re.compile(r"multiprocessing/connection\.py:wait$"), kinds.SELECT),
    (kinds.PIPE, re.compile(r"multiprocessing/connection\.py:"), kinds.CONNECTION),
    (kinds.QUEUE, re.compile(r":join$"), kinds.UNDONE),
    (kinds.QUEUE, re.compile(r":put$"), kinds.FULL),
    (kinds.QUEUE, re.compile(r"ray/util/queue\.py:"), kinds.OF_RAY),
    (kinds.QUEUE, re.compile(r"(?:^|/)queue\.py:"), kinds.INNER),
    (kinds.JOIN, re.compile(r"multiprocessing/pool\.py:"), kinds.RESULTS),
    (kinds.JOIN, re.compile(r"multiprocessing/process\.py:"), kinds.PROCESS),
    (kinds.FUTURE, re.compile(r"torch/(?:distributed/rpc/api|futures/__init__)\.py:"), kinds.RPC),
    (kinds.IDLE, re.compile(r":accept$"), kinds.ACCEPT),
    (kinds.FILE_LOCK, re.compile(r"file_baton\.py:"), kinds.BATON),
    (kinds.PIPE, re.compile(""), kinds.DEBUGGER),
    (kinds.NETWORK, _POOLS, kinds.POOLED),
)
# Frames of asyncio in which a coroutine waits for others.
_GATHERS = re.compile(r"asyncio/(?:tasks\.py:(?:_wait|wait_for)|taskgroups\.py:\w+)$")
# autograd's engine in C++: it runs hooks of the program in threads of its own, and waits there for DDP's.
_ENGINE = re.compile(r"torch/autograd/(?:graph\.py:_engine_run_backward|__init__\.py:(?:backward|grad))$")
_NATIVE: Tuple[Tuple[Pattern[str], str], ...] = (
    (re.compile(r"nccl(AllReduce|AllGather|ReduceScatter|Broadcast|Send|Recv|GroupEnd)"), kinds.COLLECTIVE),
    (re.compile(r"ProcessGroup\w+::(allreduce|allgather|broadcast|barrier|alltoall|reduce_scatter|send|recv)"),
     kinds.COLLECTIVE),
    (re.compile(r"c10d::\S*Work\w*::(?:wait|synchronize)|gloo::\S*[wW]ait"), kinds.COLLECTIVE),
    (re.compile(r"cu(?:da)?(?:Stream|Device|Event|Ctx)Synchronize"), kinds.DEVICE),
    (re.compile(r"lock_PyThread_acquire_lock|PyThread_acquire_lock_timed"), kinds.LOCK),
)  # fmt: skip
FORKED = re.compile(r"multiprocessing/popen_fork\.py:[\w.]*_launch$")  # further out are the parent's frames
_IDLE = re.compile(
    r"ray/_private/workers/default_worker\.py|multiprocessing/pool\.py:worker"
    r"|multiprocessing/managers\.py:[\w.]*_run_server|futures/process\.py:_process_worker"
    r"|futures/thread\.py:_worker|torch/utils/data/_utils/worker\.py:_worker_loop"
)


@dataclass(frozen=True)
class Wait:
    """What a thread does. `place` is the innermost frame of the program; `op` names a collective, a lock or
    a file. It is `sure` where a frame or the kernel says so, and no guess is in it."""

    kind: str
    place: Optional[Frame]
    thread: Optional[Thread]
    op: str = ""
    sure: bool = True

    @property
    def on_thread(self) -> bool:
        """Whether it is for one of its own threads."""
        return self.kind in (kinds.JOIN, kinds.FUTURE) and self.op not in (
            kinds.RPC,
            kinds.PROCESS,
            kinds.RESULTS,
        )

    @property
    def key(self) -> Tuple[str, str, str]:
        """The same with whole paths and without, and at any connection or file."""
        where = f"{self.place.function} {self.place.place.rsplit('/', 1)[-1]}" if self.place else ""
        return (self.kind, "" if self.kind in kinds.AT_ONE else self.op, where)


def own_frame(thread: Thread) -> Optional[Frame]:
    """The innermost frame of the program itself; none of those of the parent that has forked it."""
    inner = ""
    for frame in thread.frames:
        proxy = frame.file == "<string>" and inner.endswith("multiprocessing/managers.py")
        if not is_library(frame) and not proxy:
            return frame
        if _IDLE.search(f"{frame.file}:{frame.function}") or FORKED.search(f"{frame.file}:{frame.function}"):
            return None
        inner = frame.file
    return None


def working(process: Process) -> Optional[Thread]:
    """The thread that does the process's work: the main one, else the first with a frame of the program."""
    main = process.main
    if main is not None and own_frame(main) is not None:
        return main
    others = (thread for thread in process.threads if own_frame(thread) is not None)
    return next(others, None) or main


def of(process: Process) -> Wait:
    """What the process's working thread does; found once: all others of a chain ask for it."""
    known = vars(process)
    if "_wait" not in known:
        known["_wait"] = _of(process)
    found: Wait = known["_wait"]
    return found


def _of(process: Process) -> Wait:
    thread = working(process)
    if process.state == "T":
        return Wait(kinds.STOPPED, own_frame(thread) if thread else None, thread)
    if process.state == "D":
        told = f"state D, `{process.facts.get('wchan', '')}`"
        return Wait(kinds.DISK, own_frame(thread) if thread else None, thread, told)
    if thread is None:
        return Wait(kinds.OTHER, None, None, sure=False)
    found = of_thread(process, thread)
    if found.op == kinds.BACKWARD:  # a hook of the program, which the engine runs in a thread of its own
        hooks = [one for one in process.threads if one is not thread and _is_native(one) and own_frame(one)]
        return of_thread(process, hooks[0]) if hooks else found
    if found.on_thread:
        return _by_thread(process, found)
    if found.kind == kinds.LOOP and _serves(process):
        found = replace(found, kind=kinds.IDLE, op="")
    # a server that waits for requests, while threads of it answer some
    return answering(process, thread) or found if found.kind == kinds.IDLE else found


def _by_thread(process: Process, found: Wait) -> Wait:
    """What the thread does for which it waits, if that one waits for another process and no other tells."""
    told = {
        one.key: one for thread in process.threads
        if thread is not found.thread and not thread.is_task and own_frame(thread) is not None
        for one in [of_thread(process, thread)]
    }  # fmt: skip
    pool = [one for one in told.values() if one.thread and is_pooled(one.thread)]
    rest = pool if pool and found.kind == kinds.FUTURE else list(told.values())
    rest = [
        one for one in rest if one.kind not in (kinds.QUEUE, kinds.LOOP, kinds.IDLE, kinds.LOCK, kinds.OTHER)
    ]
    return replace(rest[0], sure=False) if len(rest) == 1 and rest[0].kind in kinds.OUTWARD else found


def answering(process: Process, thread: Optional[Thread]) -> Optional[Wait]:
    """What the process does for a request, in another thread than this one."""
    found = [other for other in process.threads if other is not thread and _answers(other)]
    return of_thread(process, found[0]) if found else None


def _serves(process: Process) -> bool:
    """Whether none of the coroutines that its event loop runs is the program's, and it takes connections."""
    tasks = [thread for thread in process.threads if thread.is_task]
    listens = any(row[2] == "LISTEN" for row in process.facts.get("sockets", ()))
    return bool(tasks) and listens and not process.rank and not any(own_frame(task) for task in tasks)


def _answers(thread: Thread) -> bool:
    """Whether the thread answers a request, or works for a pool."""
    served = is_pooled(thread) or any(
        frame.file.endswith(("socketserver.py", "rpc/internal.py")) for frame in thread.frames
    )
    return served and own_frame(thread) is not None


def of_thread(process: Process, thread: Thread) -> Wait:
    place = own_frame(thread)
    if place is None and is_pooled(thread):
        return Wait(kinds.IDLE, None, thread)
    if thread.is_task:
        return _of_task(thread, place)
    if _drains(process, thread):
        return Wait(kinds.QUEUE, place, thread, kinds.DRAIN)
    call = str(process.facts.get("calls", {}).get(str(thread.number), ""))
    told = _by_frames(thread, place) or _by_native(thread, place)
    if told is not None and told.op in _OF_PIPES and told.op != kinds.HANDSHAKE and " on socket " in call:
        by_call = calls.told(call, "")  # a connection with an address; one without is a pair's
        return replace(told, kind=by_call[0], op=by_call[1]) if by_call and by_call[1].strip() else told
    if told is not None:
        return told
    text = place.text if place is not None and place is thread.frames[0] else ""
    if _in_backward(process, thread, place) and call != "running":
        return Wait(kinds.COLLECTIVE, place, thread, kinds.BACKWARD, sure=False)
    if place is not None and call.startswith("futex"):
        if found := texts.COLLECTIVE.search(text):
            return Wait(kinds.COLLECTIVE, place, thread, found[1])
        if texts.WORK.search(text):
            return Wait(kinds.COLLECTIVE, place, thread, kinds.WORK, sure=False)
        if texts.FUTURE.search(text):
            return Wait(kinds.FUTURE, place, thread, kinds.RPC, sure=False)
    if texts.SYNC.search(text):  # of a tensor on the CPU this takes no time
        return Wait(kinds.DEVICE, place, thread, sure=False)
    if (name := texts.wanted_lock(text)) and thread.busy is not True:
        return Wait(kinds.LOCK, place, thread, name, sure=False)
    if thread.busy or call == "running":
        return Wait(kinds.BUSY, place, thread)
    if texts.JOINS.search(text):
        return Wait(kinds.NETWORK, place, thread, kinds.JOINED, sure=False)
    if texts.STORE.search(text):
        return Wait(kinds.STORE, place, thread, sure=False)
    locked = process.facts.get("behind", {}).get(str(thread.number))
    if text and locked and "sleep" in call and "sleep" not in text:  # between two tries, as SQLite does
        return Wait(kinds.FILE_LOCK, place, thread, sure=False)
    by_call = calls.told(call, text) if place is not None else None
    if by_call is not None:
        return Wait(by_call[0], place, thread, by_call[1], sure=by_call[0] != kinds.LOCK)
    return Wait(kinds.OTHER, place, thread, sure=False)


def _by_frames(thread: Thread, place: Optional[Frame]) -> Optional[Wait]:
    """By the outermost frame of a library that waits, of those below the program's own."""
    found: Optional[Wait] = None
    for frame in _inner(thread, place):
        name = frame.function.rsplit(".", 1)[-1]
        kind = next((k for k, file, func in _RULES if file.search(frame.file) and func.match(name)), None)
        if kind is not None and not (
            found and found.kind == kind == kinds.COLLECTIVE and name.startswith("_")
        ):
            lock = texts.wanted_lock(place.text) if kind == kinds.LOCK and place else ""
            at = f"{frame.file}:{name}"
            op = next((op for k, where, op in _FRAME_OPS if k == kind and where.search(at)), "")
            found = Wait(kind, place, thread, name if kind in kinds.ON_RANKS else lock or op)
        elif (
            found
            and found.op in (*_OF_PIPES, kinds.PROXY)
            and frame.file.endswith("multiprocessing/managers.py")
        ):
            found = Wait(
                kinds.LOCK if name in ("acquire", "__enter__") else kinds.QUEUE, place, thread, kinds.PROXY
            )
    return found


def _by_native(thread: Thread, place: Optional[Frame]) -> Optional[Wait]:
    """By names of C functions, which GDB and `py-spy --native` show."""
    for frame in _inner(thread, place):
        for pattern, kind in _NATIVE:
            if found := pattern.search(frame.function):
                op = next((part for part in found.groups() if part), "wait") if kind in kinds.ON_RANKS else ""
                return Wait(kind, place, thread, op.lower())
    return None


def _inner(thread: Thread, place: Optional[Frame]) -> Iterator[Frame]:
    for frame in thread.frames:
        if frame is place:
            return
        yield frame


def _in_backward(process: Process, thread: Thread, place: Optional[Frame]) -> bool:
    """Whether the thread stands in autograd's engine, with no frame of Python below: its gradients wait for
    those of the others, by DDP's reducer or behind NCCL's kernels."""
    if place is None or thread.busy is True or process.facts.get("world") == "1":
        return False
    inner = thread.frames[0]
    return _ENGINE.search(f"{inner.file}:{inner.function}") is not None


def _is_native(thread: Thread) -> bool:
    """Whether C++ has started the thread: it has no frame of `threading` at its beginning."""
    begun = any(frame.function.endswith("_bootstrap") for frame in thread.frames)
    return not (thread.is_task or begun or thread.name == MAIN)


def is_pooled(thread: Thread) -> bool:
    """A worker of Ray, of a pool or of a data loader; without a frame of the program it has nothing to do."""
    return any(_IDLE.search(f"{frame.file}:{frame.function}") for frame in thread.frames)


def runs_loop(thread: Thread) -> bool:
    """Whether the thread runs an event loop."""
    return any(
        kind == kinds.LOOP and file.search(frame.file) for frame in thread.frames for kind, file, _ in _RULES
    )


def _of_task(thread: Thread, place: Optional[Frame]) -> Wait:
    """What a coroutine waits for; by the outermost frame of a library that tells."""
    found = Wait(kinds.LOOP, place, thread)
    for frame in _inner(thread, place):
        for kind, file, functions in _TASK_RULES:
            if file.search(frame.file) and (not functions or frame.function in functions):
                ops = {kinds.LOOP: _OPS_OF_LOCK, kinds.QUEUE: _OPS_OF_QUEUE}.get(kind, {})
                found = replace(found, kind=kind, op=ops.get(frame.function, ""))
        if _POOLS.search(f"{frame.file}:{frame.function}"):
            return replace(found, kind=kinds.NETWORK, op=kinds.POOLED)
    return found


def coroutines(process: Process) -> List[Wait]:
    """The coroutines that wait for no other one, one of each place; those that sleep only where all do."""
    found = {
        told.key: told
        for thread in process.threads
        if thread.is_task and own_frame(thread) is not None and not _gathers(thread)
        for told in [of_thread(process, thread)]
    }
    told = list(found.values())
    return [one for one in told if one.kind != kinds.SLEEP] or told


def _gathers(thread: Thread) -> bool:
    inner = thread.frames[0]
    return _GATHERS.search(f"{inner.file}:{inner.function}") is not None


def _drains(process: Process, thread: Thread) -> bool:
    """Whether the thread only waits for a queue's feeder, whose rest does not fit into the pipe."""
    ends = any(frame.function.endswith(("_finalize_join", "join_thread")) for frame in thread.frames)
    return ends and any(
        frame.function.rsplit(".", 1)[-1] == "_feed" and frame.file.endswith("multiprocessing/queues.py")
        for other in process.threads
        for frame in other.frames
    )


def holds(process: Process, name: str) -> bool:
    """Whether a thread of the process holds the lock, by the lines of the program."""
    return any(name in frame.held for thread in process.threads for frame in thread.frames)
