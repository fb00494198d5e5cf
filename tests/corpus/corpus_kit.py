"""Labelled failures and the surroundings that real logs put them in.

A surrounding turns the lines of one failure into logs of one or several nodes. What it adds is harmless or an
effect: the first cause has to stay the same in all of them.
"""

from __future__ import annotations

import gzip
import json
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from jobspec.triage import LogSource, Match, first_cause, load_signatures, scan_files
from jobspec.triage.hint_index import HintIndex

HERE = Path(__file__).parent
FIXTURES = HERE.parent / "fixtures"
TREND_LINES = 3  # a metric is judged by its last three values


@dataclass(frozen=True)
class Case:
    """`lines` show the failure; the first cause has to have this signature, class and verdict."""

    id: str
    lines: tuple[str, ...]
    signature: str
    kind: str
    verdict: str


def public_cases() -> list[Case]:
    rows = json.loads((HERE / "public_cases.json").read_text("utf-8"))
    return [
        Case(row["id"], tuple(row["sample"].splitlines()), row["signature"], row["kind"], row["verdict"])
        for row in rows
    ]


class Log(NamedTuple):
    """One node's log."""

    node: str
    name: str
    text: str


Surrounding = Callable[[tuple[str, ...]], list[Log]]

TRENDS = {signature.id for signature in load_signatures() if signature.trend}
GENERIC = {signature.id for signature in load_signatures() if signature.generic}
WRAPPERS = {signature.id for signature in load_signatures() if signature.wrapper}
INDEX = HintIndex()  # making one takes longer than to scan one of these logs

HEALTHY = (FIXTURES / "verl_log_example.txt").read_text("utf-8").splitlines()
# What is printed before training begins, with times: nothing in it is a failure.
PREAMBLE = [
    "2026-08-22 10:00:01,402\tINFO worker.py:2004 -- Started a local Ray instance.",
    "(raylet) file_system_monitor.cc:48: /tmp/ray is 41% full",
    "/usr/lib/python3.12/site-packages/x.py:12: FutureWarning: SIGTERM changed, RuntimeError: is next",
    "UserWarning: Address already in use is handled by trying the next port",
]
# What follows a failure anywhere in a Ray job, and says nothing about why.
EFFECTS = [
    "Traceback (most recent call last):",
    '  File "/opt/app/main.py", line 195, in main',
    "    raise RuntimeError('x')",
    "ray.exceptions.RayTaskError(RuntimeError): ray::TaskRunner.run() (pid=41207, ip=10.0.0.11)",
    "ray.exceptions.ActorDiedError: The actor died unexpectedly before finishing this task.",
    "[rank5]:[E822 10:20:00.113456789 ProcessGroupNCCL.cpp:616] [Rank 5] Watchdog caught collective operation"
    " timeout: WorkNCCL(SeqNum=9, OpType=ALLREDUCE, NumelIn=1, NumelOut=1, Timeout(ms)=600000) ran for 60 s",
    "torch.distributed.DistBackendError: NCCL error, wait timeout after 600000ms",
    "RuntimeError: Engine core initialization failed. See root cause above. Failed core proc(s): {}",
    "ConnectionResetError: [Errno 104] Connection reset by peer",
    "*** SIGTERM received at time=1787393999 on cpu 3 ***",
    "srun: error: n2: tasks 1-7: Terminated",
    "srun: error: n1: task 0: Exited with exit code 1",
    "slurmstepd: error: *** STEP 12.0 ON n1 CANCELLED AT 2026-08-22T10:30:00 ***",
    "/usr/lib/resource_tracker.py:254: UserWarning: resource_tracker: There appear to"
    " be 4 leaked semaphore objects to clean up at shutdown: OSError: [Errno 28]",
    "Exception ignored in: <function Tracking.__del__ at 0x7f>",
    "Traceback (most recent call last):",
    '  File "/opt/verl/utils/tracking.py", line 10, in __del__',
    "BrokenPipeError: [Errno 32] Broken pipe",
]


def plain(lines: tuple[str, ...]) -> list[Log]:
    return [Log("n1", "train", "\n".join(lines))]


def after_a_start_before_effects(lines: tuple[str, ...]) -> list[Log]:
    return [Log("n1", "train", "\n".join([*PREAMBLE, *lines, *EFFECTS]))]


def between_repeated_effects(lines: tuple[str, ...]) -> list[Log]:
    loud = [f"(W pid={n}) {EFFECTS[4]} [repeated {n}x across cluster]" for n in range(2, 40)]
    return [Log("n1", "train", "\n".join([*loud, *lines, *loud]))]


def from_a_ray_worker(lines: tuple[str, ...]) -> list[Log]:
    head = "\x1b[36m(WorkerDict[rank=3] pid=41990, ip=10.0.0.12)\x1b[0m "
    tail = "\x1b[32m [repeated 7x across cluster] (Ray deduplicates logs by default.)\x1b[0m"
    worker = [f"{head}{line}{tail}" for line in lines]
    return [Log("n1", "train", "\n".join([*PREAMBLE, *worker, *EFFECTS]))]


def behind_a_progress_bar(lines: tuple[str, ...]) -> list[Log]:
    bar = "Training Progress:  50%|#####     | 1/2 [01:21<01:21, 81.40s/it]"
    return [
        Log("n1", "train", "\r\n".join([*PREAMBLE, *(f"{bar}\r{bar}\r{line}" for line in lines), *EFFECTS]))
    ]


def labelled_by_launchers(lines: tuple[str, ...]) -> list[Log]:
    return [Log("n1", "train", "\n".join(f"12: [rank12]: {line}" for line in (*lines, *EFFECTS)))]


def on_another_node_earlier(lines: tuple[str, ...]) -> list[Log]:
    """The cause on the node that is read last, its time in vLLM's form; the first node is loud and later."""
    loud = [f"2026-08-22 10:2{n % 10}:00,000 ERROR {EFFECTS[n % 8]}" for n in range(20)]
    cause = ["INFO 08-22 10:04:00 [core.py:58] waiting", *lines]
    return [
        Log("n1", "a-train", "\n".join(loud)),
        Log("n2", "b-worker", "2026/08/22 10:25:00 [error] RuntimeError: lost the others"),
        Log("n3", "c-worker", "\n".join(cause)),
    ]


def before_another_cause(lines: tuple[str, ...]) -> list[Log]:
    """A second specific failure, later, on a node that is read first. Only for specific causes."""
    later = "E0822 10:25:00.113456 4711 x.cc:7] CUDA error: an illegal memory access was encountered"
    cause = ["Sat Aug 22 10:04:00 UTC 2026", *lines]
    return [Log("n1", "a-train", later), Log("n2", "b-worker", "\n".join(cause))]


def after_steps_of_training(lines: tuple[str, ...]) -> list[Log]:
    return [Log("n1", "train", "\n".join([*HEALTHY[:102], *lines, *EFFECTS]))]


def packed(lines: tuple[str, ...]) -> list[Log]:
    return [Log("n1", "train.log.gz", "\n".join([*PREAMBLE, *lines, *EFFECTS]))]


SURROUNDINGS: tuple[Surrounding, ...] = (
    plain,
    after_a_start_before_effects,
    between_repeated_effects,
    from_a_ray_worker,
    behind_a_progress_bar,
    labelled_by_launchers,
    on_another_node_earlier,
    before_another_cause,
    after_steps_of_training,
    packed,
)


def shown(case: Case, surrounding: Surrounding, folder: Path) -> Match | None:
    """What triage gives for the case in this surrounding: its first cause; of a line that never is one beside
    others, the match."""
    found = scan(surrounding(case.lines * (TREND_LINES if case.signature in TRENDS else 1)), folder)
    hidden = surrounding is before_another_cause and case.signature in GENERIC
    if case.verdict == "Note" or case.signature in WRAPPERS or hidden:
        return next((match for match in found if match.signature == case.signature), None)
    return first_cause(found)


def scan(logs: list[Log], folder: Path) -> list[Match]:
    """What triage finds in these logs, written as files of their nodes."""
    sources = []
    for log in logs:
        path = folder / f"{log.node}-{log.name}"
        data = log.text.encode("utf-8", "replace")
        path.write_bytes(gzip.compress(data) if path.suffix == ".gz" else data)
        os.utime(path, (1787400000, 1787400000))  # 2026-08-22: the year of times that carry none
        sources.append(LogSource(path, f"{log.node}/{log.name}", log.node))
    return scan_files(sources, INDEX)
