"""Watches whether the run still works while its commands run, and takes a dump when it does not.

It ends a run only where `watch.stall.action` says so, and two signs agree: the silence, and a dump in which
nothing moves. A look reads what has been added to the logs, and asks each node for two sums.
"""

from __future__ import annotations

import contextlib
import json
import threading
import time
from dataclasses import replace
from pathlib import Path
from typing import Any, Callable, Dict, List, Mapping, Optional

from jobspec.finding import ERROR, Finding, warning
from jobspec.plan import StallPlan
from jobspec.runtime.base.metric_files import EVENTS, LINES, files_below, kind_of
from jobspec.runtime.head.attempt import Attempt
from jobspec.runtime.head.dumps import APART_S, Dumps
from jobspec.runtime.head.nodes import Nodes
from jobspec.runtime.head.record import BLOCKED, EXIT_BLOCKED, FAILED, Cause
from jobspec.runtime.stalls.explanation import Explanation
from jobspec.runtime.stalls.lines import LineSigns
from jobspec.runtime.stalls.pace import Pace, Signs, ends, kind

POLL_S = 1.0
LOOK_S = 15.0
FOLDER_S = 60.0  # between two looks into the checkpoint's folder, which may hold many files
MAX_FILES = 20_000
MAX_READ = 4 * 1024**2  # of a log between two looks; more is skipped
NODE_S = 10.0
OWN_SAMPLES = "gpu-"
AGAIN = 4  # dumps of one attempt: each may cost some hundred KB

NO_SIGN = "no watched sign of work came"
WATCHED = "lines of a new kind, steps, metrics, checkpoints, 16 MiB of disk"

OUTSIDE, OWN = "stall.outside", "driver.stall"  # the cause lies outside of what is tested, or in it

Ended = Callable[[Finding, str], None]


class StallWatch:
    """One attempt's watch. `tell` takes a finding; `end` ends the run with one, by the action's name."""

    def __init__(
        self,
        plan: StallPlan,
        logs: Path,
        metrics: Path,
        checkpoint: Path,
        nodes: Nodes,
        dumps: Dumps,
        tell: Callable[[Finding], None],
        end: Ended,
        note: Callable[[Mapping[str, Any]], None],
    ) -> None:
        self._plan = plan
        self._logs, self._metrics, self._checkpoint = logs, metrics, checkpoint
        self._nodes, self._dumps = nodes, dumps
        self._tell, self._end, self._note = tell, end, note
        self.pace = Pace(float(plan.after_s) if plan.after_s else None)
        self.signs = LineSigns()
        self._at: Dict[Path, int] = {}
        self._lines: Dict[str, int] = {}  # read of each log, by its name below the attempt's folder
        self._saved = (0.0, 0.0, 0.0)  # when it was looked at, its bytes, and all changes of them
        self._load: Dict[str, float] = {}
        self._before = (0.0, 0.0)
        self._told: Optional[Finding] = None
        self._taken = 0
        self._lines_then = 0
        self._thread = threading.Thread(target=self._run, daemon=True, name="stall-watch")
        self._thread.start()

    def close(self) -> None:
        self._dumps.closed.set()
        self._thread.join(10.0)

    def _run(self) -> None:
        every = min(LOOK_S, max(1.0, (self._plan.after_s or LOOK_S * 10) / 10))
        look = time.monotonic()
        while not self._dumps.closed.wait(POLL_S):
            try:
                for ask in self._dumps.asked():
                    self._dumps.answer(ask)
                if time.monotonic() >= look:
                    look = time.monotonic() + every
                    self.look()
            except OSError as problem:  # a full disk, say: there may be room for the next one
                self._dumps.failed(problem)

    def look(self) -> None:
        """One look; a dump where the run has stood still for longer than its patience."""
        if self.pace.see(self._signs()):
            self._lines_then = self.signs.lines
            if self._told is not None:
                self._note({"what": "went-on", "sign": self.pace.sign})
                self._told = None
        elif self.pace.stands and self._told is None and self._taken < AGAIN:
            self._stalled()

    def _stalled(self) -> None:
        silence, phase = self.pace.silence, self.pace.phase
        looks = kind(self.pace, self.signs.engine, self.signs.lines - self._lines_then)
        lines = dict(self._lines)
        self._taken += 1
        found, folder = self._dumps.take(_unseen(silence), min(APART_S, self.pace.patience))
        if self.pace.see(self._signs()):
            self._note({"what": "went-on", "sign": self.pace.sign})
            return  # it worked on while the dump was taken
        self._told = finding(found, silence, self.pace.patience, phase, looks, folder, self.signs.last)
        told = {"seconds": round(silence), "frozen": found.frozen, "dump": folder.name, "lines": lines}
        self._note({"what": "stall", **told})
        if ends(self._plan.action, found.frozen) and not self._dumps.closed.is_set():
            self._end(replace(self._told, severity=ERROR), self._plan.action)
        else:
            self._tell(self._told)

    def _signs(self) -> Signs:
        self._read_logs()
        counts = {
            "lines": float(self.signs.work),
            "steps": float(self.signs.steps),
            "metrics": self._metric_bytes(),
            "checkpoint": self._checkpoint_bytes(),
            **self._counters(),
        }
        return Signs(time.monotonic(), self.signs.phase, counts, dict(self._load))

    def _read_logs(self) -> None:
        with contextlib.suppress(OSError):
            for path in sorted(self._logs.glob("*.log")):
                own = path.name in ("agent.log", "ray.log", "ray-probe.log")
                if not own and not path.name.startswith("service-"):
                    self._read(path)

    def _read(self, path: Path) -> None:
        size, at = path.stat().st_size, self._at.get(path, 0)
        if size <= at:
            return
        with path.open("rb") as file:
            file.seek(max(at, size - MAX_READ))
            data = file.read(MAX_READ)
        name = f"logs/{self._logs.name}/{path.name}"
        self._lines[name] = self._lines.get(name, 0) + data.count(b"\n") if size - at <= MAX_READ else 0
        whole = data.rfind(b"\n") + 1 or (len(data) if b"\r" in data else 0)
        self._at[path] = size - len(data) + whole
        self.signs.feed(data[:whole].decode("utf-8", "replace").splitlines())

    def _metric_bytes(self) -> float:
        total = 0
        for path in files_below(self._metrics):
            if kind_of(path) in (LINES, EVENTS) and not path.name.startswith(OWN_SAMPLES):
                with contextlib.suppress(OSError):
                    total += path.stat().st_size
        return float(total)

    def _checkpoint_bytes(self) -> float:
        """All changes of the bytes below the checkpoints' folder: an old one may go as a new one comes."""
        when, size, changed = self._saved
        if time.monotonic() - when < FOLDER_S and self._plan.after_s is None:
            return changed
        total = 0.0
        with contextlib.suppress(OSError):
            for number, path in enumerate(self._checkpoint.rglob("*")):
                if number > MAX_FILES:
                    break
                with contextlib.suppress(OSError):
                    total += path.stat().st_size
        self._saved = (time.monotonic(), total, changed + abs(total - size))
        return self._saved[2]

    def _counters(self) -> Dict[str, float]:
        """Bytes of disk that all nodes have moved; sets the load as well."""
        calls = self._nodes.call_all("counters")
        self._nodes.settle(calls, NODE_S)
        replies = [call.reply for call in calls if call.reply and "cpu_s" in call.reply]
        now, cpu = time.monotonic(), sum(float(reply["cpu_s"]) for reply in replies)
        when, before = self._before
        self._load = {"cores": max(0.0, cpu - before) / (now - when)} if when and replies else {}
        self._before = (now, cpu)
        busy = _gpu_busy(self._metrics)
        if busy is not None:
            self._load["gpu"] = busy
        return {"io": sum(float(reply["io_bytes"]) for reply in replies)} if replies else {}


def _gpu_busy(metrics: Path) -> Optional[float]:
    """The mean of the GPUs' last samples."""
    values: List[float] = []
    with contextlib.suppress(OSError, ValueError):
        for path in metrics.glob(f"{OWN_SAMPLES}*.jsonl"):
            with path.open("rb") as file:
                file.seek(max(0, path.stat().st_size - 4096))
                last = file.read().splitlines()[-1:]
            row = json.loads(last[0]) if last else {}
            values += [value for name, value in row.items() if name.endswith("/busy_percent")]
    return sum(values) / len(values) if values else None


def of_attempt(attempt: Attempt) -> StallWatch:
    """The watch over an attempt whose commands begin."""
    paths = attempt.node.paths
    dumps = Dumps(paths.attempt / "dumps", attempt.who.hosts, attempt.nodes, attempt.node)

    def end(told: Finding, action: str) -> None:
        blocked = told.rule == OUTSIDE
        cause = Cause(BLOCKED if blocked else FAILED, EXIT_BLOCKED if blocked else 1, "driver", (told,))
        attempt.stop(replace(cause, again=action == "requeue"))

    return StallWatch(
        attempt.plan.stall,
        paths.logs,
        paths.metrics,
        Path(paths.checkpoint),
        attempt.nodes,
        dumps,
        lambda told: attempt.record.find("driver", told),
        end,
        lambda data: attempt.record.log.emit("driver", "progress", data=data),
    )


def finding(
    found: Explanation, silence: float, patience: float, phase: str, looks: str, folder: Path, last: str
) -> Finding:
    """The stall as a finding. What the dump shows comes first; without movement the run stands still."""
    moves = ", though its processes move, begin or use the CPU" if found.frozen is False else ""
    stands = "the run stands still" if found.frozen else f"{NO_SIGN}{moves}"
    after = f"{stands}: nothing new for {_span(silence)} in phase `{phase}`"
    seen = f"seen from outside: {looks}" + (f"; its last new line is `{last}`" if last else "")
    why = "; ".join(
        part for part in (found.why, "inferred" if found.inferred and not found.why else "", seen) if part
    )
    fix = f"{found.fix}; the dump is in {folder}" if found.fix else f"see the dump in {folder}"
    rule = OUTSIDE if found.blocked else OWN
    return warning(
        rule, f"{after}: {found.what}", f"{why}; patience was {_span(patience)}", fix, node=found.node
    )


def _unseen(silence: float) -> str:
    """Why the watch takes a dump: what it looks for, which is less than all that may be work."""
    return f"{NO_SIGN} for {_span(silence)} before the dump: {WATCHED}"


def _span(seconds: float) -> str:
    minutes = round(seconds / 60)
    return (
        f"{seconds:.0f} s"
        if seconds < 120
        else f"{minutes} min"
        if minutes < 120
        else f"{minutes / 60:.1f} h"
    )
