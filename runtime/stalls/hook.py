"""`sitecustomize` of every Python process of a run: it lets the node's agent ask for the stacks by a signal.

Another signal asks for the coroutines of its event loops, which no stack shows.

Travels as `sitecustomize.py` in `runtime.pyz`, on the programs' PYTHONPATH; then it runs the `sitecustomize`
that it hides. faulthandler writes into memory (memfd), so nothing is left on a disk. Nothing here may break a
program: what fails is left out, and the grammar is that of Python 3.6, which a tool of the run may use.
"""

import os
import sys

TYPE_CHECKING = False  # `typing` takes a while, and this runs at every start of a Python
if TYPE_CHECKING:
    from asyncio import Task
    from types import FrameType
    from typing import Any

SIGNAL_ABOVE_MIN = 8  # SIGRTMIN + 8: Slurm, NCCL and the frameworks use others
TASKS_ABOVE_MIN = 9
MAX_TASKS, MAX_DEPTH = 64, 32
NAME = "jobspec-stacks"
HIGH_FD = 200  # programs expect the low numbers for themselves
PR_SET_PTRACER = 0x59616D61  # prctl(2), Yama

_file = -1


def _arm() -> None:
    """Register the handler, in a forked child with a file of its own."""
    global _file
    import faulthandler
    import fcntl
    import signal

    old, made = _file, os.memfd_create(NAME)
    _file = fcntl.fcntl(made, fcntl.F_DUPFD_CLOEXEC, HIGH_FD)
    os.close(made)
    faulthandler.register(signal.SIGRTMIN + SIGNAL_ABOVE_MIN, file=_file, all_threads=True, chain=False)
    signal.signal(signal.SIGRTMIN + TASKS_ABOVE_MIN, _write_tasks)
    if old >= 0:
        os.close(old)
    _allow()


def _write_tasks(number: int, frame: "FrameType | None") -> None:
    """Write the coroutines that wait, but not for another one, in the form of py-spy."""
    text = "coroutines:\n"
    try:
        for task in _tasks()[:MAX_TASKS]:
            name = "".join(c for c in task.get_name()[:60] if c.isprintable() and c != '"')
            text += f'Thread 0 (idle): "task {name}"\n' + "".join(f"    {line}\n" for line in _calls(task))
    except Exception:  # noqa: BLE001 - a set that another thread changes: then without the others
        pass
    os.write(_file, text.encode("utf-8", "replace"))


def _tasks() -> "list[Task[Any]]":
    """The tasks of all loops that this version of Python tells, without those that wait for another one."""
    asyncio = sys.modules.get("asyncio")
    if asyncio is None:
        return []
    found = {task for name in ("_all_tasks", "_scheduled_tasks", "_eager_tasks")
             for task in list(getattr(asyncio.tasks, name, ()))}  # fmt: skip
    loop = asyncio._get_running_loop()
    if loop is not None:
        found.update(asyncio.all_tasks(loop))
    waiting = [(task, getattr(task, "_fut_waiter", None)) for task in found if not task.done()]
    return [
        task
        for task, future in waiting
        if future is not None and not isinstance(future, asyncio.Task) and not hasattr(future, "_children")
    ]


def _calls(task: "Task[Any]") -> "list[str]":
    """The chain of calls, the innermost first."""
    lines: "list[str]" = []
    now: "Any" = task.get_coro()
    for _ in range(MAX_DEPTH):
        frame = _first(now, "cr_frame", "gi_frame", "ag_frame")
        if frame is not None:
            lines.append(f"{frame.f_code.co_name} ({frame.f_code.co_filename}:{frame.f_lineno})")
        now = _first(now, "cr_await", "gi_yieldfrom", "ag_await") or _wrapped(now)
    return lines[::-1]


def _first(thing: "Any", *names: str) -> "Any":
    found = (getattr(thing, name, None) for name in names)
    return next((one for one in found if one is not None), None)


def _wrapped(thing: "Any") -> "Any":
    """The coroutine behind the wrapper by which C code, such as Ray's, awaits it."""
    if type(thing).__name__ != "coroutine_wrapper":
        return None
    import gc

    return next((one for one in gc.get_referents(thing) if hasattr(one, "cr_frame")), None)


def _allow() -> None:
    """Where Yama lets only ancestors look into a process, let the node's agent do so as well."""
    agent = os.environ.get("JOBSPEC_AGENT_PID", "")
    try:
        with open("/proc/sys/kernel/yama/ptrace_scope") as file:  # noqa: PTH123 - at every start of a Python
            if file.read().strip() != "1" or not agent.isdecimal():
                return
    except OSError:
        return
    import ctypes

    ctypes.CDLL(None).prctl(PR_SET_PTRACER, int(agent), 0, 0, 0)


def _run_hidden() -> None:
    """Run the `sitecustomize` of the image, which this one hides."""
    from importlib.machinery import PathFinder
    from importlib.util import module_from_spec

    own = os.path.dirname(os.path.abspath(__file__))  # noqa: PTH100, PTH120
    spec = PathFinder.find_spec("sitecustomize", [p for p in sys.path if os.path.abspath(p) != own])  # noqa: PTH100
    if spec is not None and spec.loader is not None:
        module = module_from_spec(spec)
        sys.modules["sitecustomize"] = module
        spec.loader.exec_module(module)


if __name__ == "sitecustomize":
    if os.environ.get("JOBSPEC_SCRATCH"):
        try:
            _arm()
            os.register_at_fork(after_in_child=_arm)
        except Exception:  # noqa: BLE001 - an old kernel, no descriptor left: the run goes on without it
            pass
    _run_hidden()
