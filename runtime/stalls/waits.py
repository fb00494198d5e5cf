"""What a process waits for, told from the frames of its working thread and, in own dumps, its system call.

Rules alone: a frame of a library that waits says for what. Where only the system call tells, it is inferred.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import Iterator, List, Optional, Tuple

from jobspec.runtime.stalls import calls, kinds, texts, wait_rules
from jobspec.runtime.stalls.libraries import is_library
from jobspec.runtime.stalls.stacks import MAIN, Frame, Process, Thread


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
    for frame in thread.frames:
        if not is_library(frame) and not _is_generated(frame, thread):
            return frame
        at = f"{frame.file}:{frame.function}"
        if wait_rules.IDLE.search(at) or wait_rules.FORKED.search(at):
            return None
    return None


def _is_generated(frame: Frame, thread: Thread) -> bool:
    """Whether a library has made the code, as of a manager's proxy or a shared value."""
    return (
        frame.file == "<string>"
        and frame.function != "<module>"
        and any(one.file != frame.file and not is_library(one) for one in thread.frames)
    )


def working(process: Process) -> Optional[Thread]:
    """The thread that does the process's work: the main one, else the first with a frame of the program."""
    main = process.main
    if main is not None and own_frame(main) is not None:
        return main
    others = [thread for thread in process.threads if own_frame(thread) is not None]
    tasks = [thread for thread in others if thread.is_task] if others and others[0].is_task else []
    return next((one for one in tasks if not _rests(one)), others[0] if others else main)


def _rests(task: Thread) -> bool:
    """Whether the coroutine may only have nothing to do: it takes from a queue, or sleeps for a moment."""
    told = _of_task(task, own_frame(task))
    naps = told.kind == kinds.SLEEP and texts.naps(told.place)
    return naps or (told.kind == kinds.QUEUE and told.op == kinds.INNER)


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
        call = str(process.facts.get("calls", {}).get(str(thread.number), "")) if thread else ""
        op = kinds.TERMINAL if calls.AT_TERMINAL.search(call) else ""
        return Wait(kinds.STOPPED, own_frame(thread) if thread else None, thread, op)
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
    found = [other for other in process.threads if other is not thread and answers(other)]
    return of_thread(process, found[0]) if found else None


def _serves(process: Process) -> bool:
    """Whether none of the coroutines that its event loop runs is the program's, and it takes connections."""
    tasks = [thread for thread in process.threads if thread.is_task]
    listens = any(row[2] == "LISTEN" for row in process.facts.get("sockets", ()))
    return bool(tasks) and listens and not process.rank and not any(own_frame(task) for task in tasks)


def answers(thread: Thread) -> bool:
    """Whether the thread answers a request, or works for a pool: its frame of the program is below the
    server's. One above it, as of who calls `serve_forever()`, waits for requests."""
    own = own_frame(thread)
    below = thread.frames[thread.frames.index(own) :] if own is not None else ()
    served = any(frame.file.endswith(("socketserver.py", "rpc/internal.py")) for frame in below)
    return own is not None and (served or is_pooled(thread))


def of_thread(process: Process, thread: Thread) -> Wait:
    place = own_frame(thread)
    if place is None and is_pooled(thread):
        return Wait(kinds.IDLE, None, thread, _pooled(process, thread))
    if thread.is_task:
        return _of_task(thread, place)
    if _drains(process, thread):
        return Wait(kinds.QUEUE, place, thread, kinds.DRAIN)
    call = str(process.facts.get("calls", {}).get(str(thread.number), ""))
    told = _by_frames(thread, place) or _by_native(thread, place)
    pipe = told is not None and told.op in wait_rules.OF_PIPES and told.op != kinds.HANDSHAKE
    if told is not None and pipe and " on socket " in call:
        by_call = calls.told(call, "")  # a connection with an address; one without is a pair's
        return replace(told, kind=by_call[0], op=by_call[1]) if by_call and by_call[1].strip() else told
    if told is not None and told.kind == kinds.NETWORK and not told.op and call.endswith(" on socket"):
        return replace(told, op=kinds.SOCKET)
    if told is not None:
        return told
    text = place.text if place is not None and place is thread.frames[0] else ""
    if _in_backward(process, thread, place) and call != "running":
        return Wait(kinds.COLLECTIVE, place, thread, kinds.BACKWARD, sure=False)
    if place is not None and call.startswith("futex"):
        if found := texts.COLLECTIVE.search(text):
            return Wait(kinds.COLLECTIVE, place, thread, found[1])
        if texts.WORK.search(text) and _has_ranks(process):
            return Wait(kinds.COLLECTIVE, place, thread, kinds.WORK, sure=False)
        if texts.FUTURE.search(text):
            return Wait(kinds.FUTURE, place, thread, kinds.RPC, sure=False)
    if texts.SYNC.search(text) and _may_be_gpu(process, call):
        return Wait(kinds.DEVICE, place, thread, sure=False)
    if (name := texts.wanted_lock(text)) and thread.busy is not True and call in ("", "futex"):
        return Wait(kinds.LOCK, place, thread, name, sure=False)
    if thread.busy or call == "running":
        return Wait(kinds.BUSY, place, thread)
    if texts.JOINS.search(text):
        return Wait(kinds.NETWORK, place, thread, kinds.JOINED, sure=False)
    if texts.STORE.search(text) and call != "futex":
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
        rules = wait_rules.FRAMES
        kind = next((k for k, file, func in rules if file.search(frame.file) and func.match(name)), None)
        if kind in (kinds.QUEUE, kinds.PIPE) and _has_item(thread, frame):
            kind = None
        if kind == kinds.QUEUE and _at_its_lock(thread, name):
            kind = kinds.LOCK
        if kind is not None and not (
            found and found.kind == kind == kinds.COLLECTIVE and name.startswith("_")
        ):
            lock = texts.wanted_lock(place.text) if kind == kinds.LOCK and place else ""
            at = f"{frame.file}:{name}"
            op = next((op for k, to, op in wait_rules.FRAME_OPS if k == kind and to.search(at)), "")
            op, lock = _beneath(thread, op), "" if op == kinds.NOTIFIES else lock
            found = Wait(kind, place, thread, name if kind in kinds.ON_RANKS else lock or op)
        elif (
            found
            and found.op in (*wait_rules.OF_PIPES, kinds.PROXY)
            and frame.file.endswith("multiprocessing/managers.py")
            and not _has_item(thread, frame)
        ):
            found = Wait(
                kinds.LOCK if name in ("acquire", "__enter__") else kinds.QUEUE, place, thread, kinds.PROXY
            )
    return found


def _by_native(thread: Thread, place: Optional[Frame]) -> Optional[Wait]:
    """By names of C functions, which GDB and `py-spy --native` show."""
    for frame in _inner(thread, place):
        for pattern, kind in wait_rules.NATIVE:
            if found := pattern.search(frame.function):
                op = next((part for part in found.groups() if part), "wait") if kind in kinds.ON_RANKS else ""
                return Wait(kind, place, thread, op.lower())
    return None


def _pooled(process: Process, thread: Thread) -> str:
    """What else than waiting for work it does, without a frame of the program."""
    if any(frame.function.endswith((".put", "_sendback_result")) for frame in thread.frames):
        return kinds.RESULTS
    if wait_rules.RAY_CALL.match(process.command):
        return kinds.BEGUN
    return kinds.UNUSED if process.command.startswith("ray::") else ""


def _may_be_gpu(process: Process, call: str) -> bool:
    """Whether a line such as `x.cpu()` may wait for a GPU: of a tensor on the CPU it takes no time. An own
    dump shows whether the process has one open, and that it sleeps or reads for another call of that line."""
    if "calls" not in process.facts:
        return True
    by_call = calls.told(call, "")
    return bool(process.facts.get("gpu")) and (by_call is None or by_call[0] in (kinds.LOCK, kinds.OTHER))


def _at_its_lock(thread: Thread, name: str) -> bool:
    """Whether a queue is not full, but its lock is taken. Who would get and waits for that lock, waits for
    whoever gets before it, unless the queue is one of threads."""
    inner = thread.frames[0]
    entered = inner.function.rsplit(".", 1)[-1] == "__enter__"
    return entered and (name == "put" or inner.file.endswith("threading.py"))


def _has_item(thread: Thread, frame: Frame) -> bool:
    """Whether what it asked for has come, and is unpickled now: that may ask another process for more, as
    for the memory of a tensor. What it asked before is no longer waited for."""
    further = [one for one in thread.frames[: thread.frames.index(frame)] if one.file.endswith(".py")]
    if not further or not re.search(r"multiprocessing/\w+\.py$", frame.file):
        return False
    return wait_rules.WAITING.search(f"{further[-1].file}:{further[-1].function}") is None


def _beneath(thread: Thread, op: str) -> str:
    """What is waited for at a condition or an event: its signal, or the lock beneath, which who was woken
    takes again. Only the line tells."""
    inner = thread.frames[0]
    if op != kinds.SIGNAL or not inner.file.endswith(("threading.py", "multiprocessing/synchronize.py")):
        return op
    if inner.function.endswith("__enter__") or texts.RETAKES.search(inner.text):
        return kinds.BENEATH
    shared = inner.file.endswith("multiprocessing/synchronize.py") and not inner.text
    return kinds.SHARED if shared else op


def _inner(thread: Thread, place: Optional[Frame]) -> Iterator[Frame]:
    for frame in thread.frames:
        if frame is place:
            return
        yield frame


def _in_backward(process: Process, thread: Thread, place: Optional[Frame]) -> bool:
    """Whether the thread stands in autograd's engine, with no frame of Python below: its gradients wait for
    those of the others, by DDP's reducer or behind NCCL's kernels."""
    if place is None or thread.busy is True or not _has_ranks(process):
        return False
    inner = thread.frames[0]
    return wait_rules.ENGINE.search(f"{inner.file}:{inner.function}") is not None


def _has_ranks(process: Process) -> bool:
    """Whether it may have other ranks: it is none alone. A dump that is not our own does not tell."""
    return process.facts.get("world") != "1" and bool(process.rank or "calls" not in process.facts)


def _is_native(thread: Thread) -> bool:
    """Whether C++ has started the thread: it has no frame of `threading` at its beginning."""
    begun = any(frame.function.endswith("_bootstrap") for frame in thread.frames)
    return not (thread.is_task or begun or thread.name == MAIN)


def is_pooled(thread: Thread) -> bool:
    """A worker of Ray, of a pool or of a data loader; without a frame of the program it has nothing to do."""
    return any(wait_rules.IDLE.search(f"{frame.file}:{frame.function}") for frame in thread.frames)


def runs_loop(thread: Thread) -> bool:
    """Whether the thread runs an event loop."""
    loops = [file for kind, file, _ in wait_rules.FRAMES if kind == kinds.LOOP]
    return any(file.search(frame.file) for frame in thread.frames for file in loops)


def _of_task(thread: Thread, place: Optional[Frame]) -> Wait:
    """What a coroutine waits for; by the outermost frame of a library that tells."""
    found = Wait(kinds.LOOP, place, thread)
    for frame in _inner(thread, place):
        for kind, file, functions in wait_rules.TASKS:
            if file.search(frame.file) and (not functions or frame.function in functions):
                op = wait_rules.TASK_OPS.get(kind, {}).get(frame.function, "")
                if kind == kinds.LOOP:  # an asyncio.Barrier waits at its condition
                    op = found.op or op
                found = replace(found, kind=kind, op=op)
                if "asyncio/streams" in frame.file:
                    program = place is not None and texts.STANDARD.search(place.text)
                    op = kinds.CONNECTS if frame.function in wait_rules.CONNECT else kinds.STREAM
                    found = replace(found, kind=kinds.PIPE) if program else replace(found, op=op)
        if wait_rules.POOLS.search(f"{frame.file}:{frame.function}"):
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
    return wait_rules.GATHERS.search(f"{inner.file}:{inner.function}") is not None


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
