"""What a node tells of a run that may stand still: stacks of its processes, and counters of their work."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Container, Dict, List, Mapping, Sequence

from jobspec.plan import Plan
from jobspec.runtime.base import procs
from jobspec.runtime.base.identity import Identity
from jobspec.runtime.base.redact import Redactor
from jobspec.runtime.stalls import proc_facts, ras, recorders, take

GPU_QUERY = ("--query-gpu=index,utilization.gpu,memory.used,power.draw", "--format=csv,noheader")
GPU_S = 10.0


def processes(plan: Plan, env: Mapping[str, str]) -> List[int]:
    """The run's processes on this node: what is below the guard; below another's script those of the job."""
    job = env.get("SLURM_JOB_ID") or env.get("JOBSPEC_JOB_ID", "")
    if plan.upstream is not None and job:
        return [pid for pid in take.of_job(job) if pid != os.getpid()]
    keeper = env.get("JOBSPEC_KEPT_RAY", "")  # whose agent has the run's Ray below it
    return [*procs.leftovers(), *(procs.descendants(int(keeper)) if keeper else ())]


def sample(
    plan: Plan, who: Identity, env: Mapping[str, str], redactor: Redactor, services: Container[int]
) -> Dict[str, Any]:
    """One sample of all stacks but those of services, which stand idle by nature; and what the node says."""
    pids = [pid for pid in processes(plan, env) if pid not in services]
    with ThreadPoolExecutor(1) as beside:  # each waits for others, with a deadline of its own
        status = beside.submit(_ras, pids, env)
        taken = take.take(pids, who.name, take.find_py_spy(env, who.run_dir))
    return {
        "ras": status.result(),
        "text": redactor.text(taken.text),
        "notes": [redactor.text(note) for note in taken.notes],
        "recorders": recorders.ask(Path(env.get("JOBSPEC_SCRATCH", "/nonexistent")) / "flight"),
        "node": _node_facts(env),
    }


def _ras(pids: Sequence[int], env: Mapping[str, str]) -> str:
    """NCCL's RAS, where a process of this run listens: else another job on the node would answer."""
    return ras.ask(env) if proc_facts.listens(pids, ras.address(env)[1]) else ""


def _node_facts(env: Mapping[str, str]) -> Dict[str, Any]:
    facts: Dict[str, Any] = {"load": os.getloadavg()[0]}
    with contextlib.suppress(OSError):
        rows = dict(line.split(":", 1) for line in Path("/proc/meminfo").read_text().splitlines())
        facts["memory_free_gib"] = round(int(rows["MemAvailable"].split()[0]) / 1024**2, 1)
    program = shutil.which("nvidia-smi", path=env.get("PATH"))
    if program:
        with contextlib.suppress(OSError, subprocess.TimeoutExpired):
            status, out, _ = procs.output([program, *GPU_QUERY], GPU_S, env)
            facts["gpus"] = out.decode(errors="replace").splitlines() if status == 0 else []
    return facts


class Counters:
    """CPU seconds and bytes of disk of the run's processes on this node, also of those that ended."""

    def __init__(self) -> None:
        self._seen: Dict[int, List[float]] = {}
        self._total = [0.0, 0.0]

    def read(self, plan: Plan, env: Mapping[str, str]) -> Dict[str, Any]:
        for pid in processes(plan, env):
            now = _counts(pid)
            before = self._seen.get(pid, [0.0, 0.0])
            for at in range(len(now)):
                self._total[at] += max(0.0, now[at] - before[at])
            self._seen[pid] = now
        return {"cpu_s": self._total[0], "io_bytes": self._total[1]}


def _counts(pid: int) -> List[float]:
    """[CPU seconds, bytes of disk]; zeros for a process that is gone. proc(5), `io`."""
    with contextlib.suppress(OSError, IndexError, ValueError):
        cpu = proc_facts.stat(pid)[2]
        rows = dict(line.split(": ") for line in Path(f"/proc/{pid}/io").read_text().splitlines())
        return [cpu, float(rows["read_bytes"]) + float(rows["write_bytes"])]
    return [0.0, 0.0]
