"""Takes the stacks of a run's processes on this node: by py-spy where it may, else by faulthandler.

/proc comes first, since it costs nothing and hangs on nothing. Each step has a deadline of its own, and what
was not taken is told. A process gets the signal only when it is shown to have registered for it.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Dict, List, Mapping, Optional, Sequence, Tuple

from jobspec.runtime.base import procs
from jobspec.runtime.stalls import holders, proc_facts, stacks, waits
from jobspec.runtime.stalls.hook import NAME, SIGNAL_ABOVE_MIN, TASKS_ABOVE_MIN
from jobspec.runtime.stalls.source import Sources
from jobspec.runtime.stalls.stacks import Process

PY_SPY_S = 8.0
SIGNAL_S = 2.0
TAKE_S = 25.0  # for all processes: the head waits a minute for a node, and without its answer has nothing
SOURCE_S = 5.0
AT_ONCE = 4  # py-spy side by side: a node has eight or more workers
MAX_PROCESSES = 256
MAX_PROCESS_CHARS, MAX_NODE_CHARS = 64 * 1024, 512 * 1024
# Ray's own Python services wait for ever by design; source: ray 2.60, python/ray/_private/services.py.
SERVICES = (
    "ray/dashboard/", "ray/_private/log_monitor.py", "ray/autoscaler/_private/monitor.py",
    "runtime_env/agent",
    "multiprocessing.resource_tracker", "multiprocessing/resource_tracker", "multiprocessing.forkserver",
    "jobspec.runtime.raycluster.", "ray.scripts.scripts start", "bin/ray start ",
    "ray.util.client.server", "ray::DashboardAgent", "ray::RuntimeEnvAgent",
)  # fmt: skip
# Source: entry points of torch 2.13 and accelerate 1.15; DeepSpeed's deepspeed/launcher/runner.py.
LAUNCHERS = (
    "bin/torchrun ", "torch.distributed.run ", "torch.distributed.launch ", "torch/distributed/run.py ",
    "bin/accelerate launch ", "bin/accelerate-launch ", "accelerate.commands.launch ",
    "accelerate/commands/launch.py ", "bin/deepspeed ", "deepspeed.launcher.", "deepspeed/launcher/",
)  # fmt: skip


@dataclass(frozen=True)
class Taken:
    """One sample of a node: the text of `stacks.write`, and what could not be taken."""

    text: str
    notes: Tuple[str, ...]


def find_py_spy(env: Mapping[str, str], run_dir: Path) -> str:
    """py-spy of the programs' PATH, beside this Python, or of the folder of the run or its sweep."""
    folders = (Path(sys.executable).parent, run_dir, *run_dir.parents[1:2])
    found = shutil.which("py-spy", path=env.get("PATH"))
    return found or next(
        (str(path) for path in (folder / "py-spy" for folder in folders) if _is_ours(path)), ""
    )


def _is_ours(path: Path) -> bool:
    """Whether the program can be run, and nobody else may have written it."""
    try:
        told = path.stat()
    except OSError:
        return False
    return told.st_uid in (0, os.getuid()) and not told.st_mode & 0o022 and os.access(path, os.X_OK)


def of_job(job: str) -> List[int]:
    """This user's processes with that SLURM_JOB_ID: below a framework's own script they are no children."""
    mark = f"SLURM_JOB_ID={job}".encode()
    found: List[int] = []
    for pid, info in procs.process_table().items():
        with contextlib.suppress(OSError):
            if info.state != "D" and mark in Path(f"/proc/{pid}/environ").read_bytes().split(b"\0"):
                found.append(pid)
    return found


def take(pids: Sequence[int], node: str, py_spy: str) -> Taken:
    """One sample of the processes."""
    networks = proc_facts.Networks()
    known = {pid: proc_facts.gather(pid, networks) for pid in pids if pid != os.getpid()}
    holders.tell(known)
    wanted = [pid for pid, facts in known.items() if facts and _is_wanted(pid, facts)][:MAX_PROCESSES]
    notes: Dict[str, int] = {}
    end = time.monotonic() + TAKE_S
    with ThreadPoolExecutor(AT_ONCE) as pool:
        found = list(pool.map(lambda pid: _one(pid, known[pid], py_spy, notes, end), wanted))
    _launchers(known)
    _own_ranks(known)
    named = [_complete(process, known[process.pid], node) for process in found]
    named += _dead_children(known, wanted, node)
    return Taken(_bounded(_with_source(named)), tuple(f"{text} ({count}x)" for text, count in notes.items()))


def _is_wanted(pid: int, facts: Mapping[str, Any]) -> bool:
    return facts["state"] in ("T", "D") or (facts["state"] != "Z" and proc_facts.is_python(pid))


def _one(pid: int, facts: Mapping[str, Any], py_spy: str, notes: Dict[str, int], end: float) -> Process:
    if time.monotonic() >= end:
        late = f"no stack: {TAKE_S:.0f} s were over before its turn"
        notes[late] = notes.get(late, 0) + 1
        return Process(pid)
    problem = "" if py_spy else "py-spy is not in the image"
    if py_spy and facts["state"] != "D" and proc_facts.is_python(pid):
        text, problem = _by_py_spy(pid, py_spy, stopped=facts["state"] == "T")
        read = stacks.read(text)
        if read and read[0].threads:
            return _with_tasks(read[0], facts["state"])
    if facts["state"] in ("T", "D"):
        return Process(pid)  # a signal would not reach it now
    read = stacks.read(by_signal(pid))
    if problem:
        way = "by faulthandler instead" if read else "and it has not registered faulthandler: no stack"
        notes[f"{problem}; {way}"] = notes.get(f"{problem}; {way}", 0) + 1
    return _with_tasks(replace(read[0], pid=pid), facts["state"]) if read else Process(pid)


def _with_tasks(process: Process, state: str) -> Process:
    """The process with its coroutines before its threads, where one of these runs an event loop."""
    if state == "T" or not any(waits.runs_loop(thread) for thread in process.threads):
        return process
    text = by_signal(process.pid, TASKS_ABOVE_MIN)
    read = stacks.read(f"Process {process.pid}: tasks\n{text}")
    tasks = tuple(thread for one in read for thread in one.threads if thread.is_task)
    return replace(process, threads=(*tasks, *process.threads))


def _by_py_spy(pid: int, program: str, *, stopped: bool) -> Tuple[str, str]:
    """(text, problem). Without stopping the process first; then, unless it is stopped anyway, with a stop."""
    problem = ""
    for way in (["--nonblocking"], []) if not stopped else (["--nonblocking"],):
        argv = [program, "dump", "--full-filenames", *way, "--pid", str(pid)]
        try:
            status, out, err = procs.output(argv, PY_SPY_S)
        except subprocess.TimeoutExpired:
            problem = f"py-spy did not end within {PY_SPY_S:.0f} s"
            _let_go(pid)
            continue
        except OSError as why:
            return "", f"py-spy cannot start: {why.strerror}"
        text = out.decode("utf-8", "replace")
        if status == 0 and "Thread" in text:
            return text, ""
        problem = _why(err.decode("utf-8", "replace"))
    return "", problem


def _why(text: str) -> str:
    first = next((line for line in text.splitlines() if line.strip()), "it said nothing")
    rights = "ermission" in text or "Operation not permitted" in text
    return (
        "py-spy may not look into the process (ptrace rights)" if rights else f"py-spy failed: {first[:120]}"
    )


def _let_go(pid: int) -> None:
    """A killed py-spy may leave its target stopped."""
    with contextlib.suppress(OSError, IndexError, ValueError):
        if proc_facts.stat(pid)[0] == "T":
            os.kill(pid, signal.SIGCONT)


def by_signal(pid: int, above_min: int = SIGNAL_ABOVE_MIN) -> str:
    """What faulthandler of the process writes; empty where it has not registered for the signal."""
    number = signal.SIGRTMIN + above_min
    file = _memory_file(pid)
    if not file or not _catches(pid, number):
        return ""
    try:
        before = len(file.read_bytes())
        os.kill(pid, number)
        return _grown(file, before)
    except OSError:
        return ""


def _memory_file(pid: int) -> Optional[Path]:
    """The descriptor that the hook has opened: without it the registered number may be another file's."""
    with contextlib.suppress(OSError):
        for name in os.listdir(f"/proc/{pid}/fd"):  # noqa: PTH208
            with contextlib.suppress(OSError):
                if os.readlink(f"/proc/{pid}/fd/{name}").startswith(f"/memfd:{NAME} "):  # noqa: PTH115
                    return Path(f"/proc/{pid}/fd/{name}")
    return None


def _catches(pid: int, number: int) -> bool:
    """Whether the process has a handler for the signal; its default action would end it. proc(5), SigCgt."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("SigCgt:"):
            return bool(int(line.split()[1], 16) >> (number - 1) & 1)
    return False


def _grown(file: Path, before: int) -> str:
    """The new text, once it has not grown for a moment."""
    end, size = time.monotonic() + SIGNAL_S, before
    while time.monotonic() < end:
        time.sleep(0.05)
        now = len(file.read_bytes())
        if now == size > before:
            break
        size = now
    return file.read_bytes()[before:].decode("utf-8", "replace")


def _complete(process: Process, facts: Dict[str, Any], node: str) -> Process:
    """The process with what /proc tells; the rank that its environment names."""
    facts = dict(facts)
    command = facts.pop("command", "") or proc_facts.hide(process.command)
    if any(text in command for text in SERVICES):
        facts["service"] = True
    rank = facts.pop("rank", "") or facts.get("nccl_rank", "")
    return replace(process, command=command, rank=rank, node=node, facts=facts)


def _launchers(known: Mapping[int, Dict[str, Any]]) -> None:
    """A launcher that has started its ranks is none of them, and waits for them by design."""
    started = {facts.get("parent") for pid, facts in known.items() if facts and proc_facts.is_python(pid)}
    for pid, facts in known.items():
        if pid in started and any(text in facts.get("command", "") for text in LAUNCHERS):
            facts["service"] = True
            facts.pop("rank", None)


def _own_ranks(known: Dict[int, Dict[str, Any]]) -> None:
    """Children inherit a rank's variables: only the first Python has it. One alone needs no number."""
    ranks = {pid: facts.get("rank", "") for pid, facts in known.items()}
    started = {
        facts.get("command", "") for facts in known.values()
        if facts.get("rank") and facts.get("parent", 0) in (*known, os.getpid())
    }  # fmt: skip
    for facts in known.values():
        parent = facts.get("parent", 0)
        if facts.get("world") == "1":
            facts["only_rank"] = facts.pop("rank", "")
            if parent in known and proc_facts.is_python(parent):  # which may have made ranks of its own
                facts.pop("world")
        elif facts.get("rank"):
            child = ranks.get(parent) == facts["rank"] and proc_facts.is_python(parent)
            left = parent not in (*known, os.getpid()) and started and facts.get("command", "") not in started
            if child or left or _is_orphan(facts, known):
                facts["of_rank"] = facts.pop("rank")


def _is_orphan(facts: Mapping[str, Any], known: Mapping[int, Mapping[str, Any]]) -> bool:
    """Whether an older process has the same rank and command: of such a fork the parent has ended.

    Ray's workers may have the same ones by right, in several groups.
    """
    same = (facts["rank"], facts.get("command", ""))
    return not str(same[1]).startswith("ray::") and any(
        (one.get("rank") or one.get("of_rank"), one.get("command", "")) == same
        and one.get("began", 0) < facts.get("began", 0)
        for one in known.values()
    )


def _dead_children(known: Mapping[int, Mapping[str, Any]], wanted: Sequence[int], node: str) -> List[Process]:
    """Children that have ended and that nobody has asked for."""
    return [
        Process(pid, facts.get("command", ""), node=node, facts={**facts, "service": True})
        for pid, facts in known.items()
        if facts and facts["state"] == "Z" and facts["parent"] in wanted
    ]


def _with_source(processes: List[Process]) -> List[Process]:
    """The processes with the lines of the program; without them where the files do not answer in time."""
    done: List[Process] = []

    def work() -> None:
        sources = Sources()
        for process in processes:
            done.append(sources.process(process))

    thread = threading.Thread(target=work, daemon=True, name="sources")
    thread.start()
    thread.join(SOURCE_S)
    ready = list(done)
    return [*ready, *processes[len(ready) :]]


def _bounded(processes: Sequence[Process]) -> str:
    parts: List[str] = []
    left = MAX_NODE_CHARS
    for process in processes:
        text = stacks.write([process])
        if len(text) > MAX_PROCESS_CHARS:
            main = process.main
            text = stacks.write([replace(process, threads=(main,) if main else ())])[:MAX_PROCESS_CHARS]
        if len(text) > left:
            parts.append(f"# {len(processes) - len(parts)} further processes are left out: the dump is full")
            break
        parts.append(text)
        left -= len(text)
    return "\n".join(parts)
