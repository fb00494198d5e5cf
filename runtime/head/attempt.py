"""One attempt of a run, as its head node sees it: its nodes, its record, and the cause that ends it.

Any thread may end it; the phases (`phases`) and the end (`shutdown`) hold one and drive it.
"""

from __future__ import annotations

import contextlib
import signal
import time
import traceback
from dataclasses import replace
from typing import Any, Callable, Dict, List, Mapping, Optional, Sequence, Tuple

from jobspec.finding import Finding, error, warning
from jobspec.plan import Plan
from jobspec.runtime.base.channel import QUIET_S
from jobspec.runtime.base.events import EventLog
from jobspec.runtime.base.identity import Identity
from jobspec.runtime.head import reserve
from jobspec.runtime.head.nodes import Call, DeadlineError, Nodes, RunStoppedError
from jobspec.runtime.head.record import (
    CANCELLED,
    FAILED,
    TIMEOUT,
    Cause,
    PhaseTimes,
    Record,
    blocked,
    by_signal,
)
from jobspec.runtime.node.agent import Node, Reply

FURTHER_FAULTS_S = 2.0  # after the first fault: others may have the same one, and are named with it
# Of a node's reply, in the event of its end.
TOLD = ("bytes", "received", "ready", "files", "library", "service")


class Attempt:
    """One attempt. `phase` and `driving` say where it stands; `cause` says why it ends early."""

    def __init__(self, plan: Plan, who: Identity, env: Mapping[str, str]) -> None:
        self.plan = plan
        self.who = who
        self.node = Node(plan, who, env, lambda message: self._on_message(0, message))
        paths = self.node.paths
        log = EventLog(paths.attempt / "events.jsonl", self.node.redactor)
        reserve.keep(paths.attempt)
        self.record = Record(who.attempt, paths.attempt, log, self.node.redactor)
        self.nodes = Nodes(
            who, self._on_message, self._on_joined, self._on_lost, self._on_refused, self._on_quiet
        )
        self.nodes.set_local(self.node)
        self.cause: Optional[Cause] = None
        self.signals = 0
        self.phase = "preflight"
        self.driving = False
        self.held = False  # the commands have ended well: a signal to any node is the end that is meant
        self._judged = False

    # What ends it. Any thread may call these.

    def stop(self, cause: Cause) -> None:
        """End every wait. The first cause counts; findings of later ones are kept."""
        with self.nodes.changed:  # a cause is never seen without its findings
            if self._judged:
                return
            meant = self.held and cause.outcome in (CANCELLED, TIMEOUT)
            if self.cause is None and not meant:
                self.cause = replace(cause, phase=cause.phase or self.phase)
            for finding in cause.findings:
                self.record.find(cause.phase or self.phase, finding)
            self.nodes.stop()

    def judge(self) -> Optional[Cause]:
        """The cause that the results state. Later faults are no part of the run."""
        with self.nodes.changed:
            self._judged = True
            return self.cause

    def stop_for_bug(self) -> None:
        """Stop for the exception that is being handled."""
        self.node.say(traceback.format_exc())
        what = f"the head failed in `{self.phase}`: {traceback.format_exc().strip().splitlines()[-1]}"
        why, fix = "this is a bug in jobspec", "see agent.log of this node"
        finding = error("runtime.bug", what, why, fix, node=self.who.name)
        self.stop(Cause(FAILED, 1, self.phase, (finding,)))

    def stop_by_signal(self, number: int, node: str = "") -> None:
        """Stop for a signal that the job's step got on `node`, or the batch script before it."""
        self.signals += 1
        cause = by_signal(*self._named(number, node or self.who.name))
        self.stop(cause if self.cause is None else replace(cause, findings=()))

    def _named(self, number: int, node: str) -> Tuple[int, str]:
        """The signal that somebody sent, and what it reached.

        srun would kill its tasks on a SIGTERM: the batch script hands that on as SIGUSR2, and notes it.
        """
        if number == signal.SIGUSR2:
            with contextlib.suppress(OSError, IndexError, KeyError):
                noted = (self.node.paths.attempt / "signal").read_text().replace("USR1", "").split()[-1]
                return signal.Signals[f"SIG{noted}"], "the batch script"
        return number, f"the run's agent on `{node}`"

    def stop_for_guard(self) -> None:
        """Stop since the process above this agent was killed: this node is as good as lost."""
        self._on_lost(0, "the guard of its agent was killed")

    def fail(self, phase: str, *findings: Finding) -> None:
        """Stop for a reason outside what is tested. Raises: RunStoppedError."""
        self.stop(blocked(phase, *findings))
        raise RunStoppedError

    def go_on(self) -> None:
        """Return while the run may start more. Raises: RunStoppedError once it stops."""
        if self.cause is not None:
            raise RunStoppedError

    def _on_joined(self, index: int, address: str) -> None:
        data = {"what": "joined", "address": address}
        self.record.log.emit("preflight", "progress", node=self.who.hosts[index], data=data)

    def _on_lost(self, index: int, reason: str) -> None:
        name, group = self.who.hosts[index], self.plan.part_of(index).name
        of = f" of group `{group}`" if group else ""
        finding = error(
            "node.lost",
            f"node `{name}`{of} left during `{self.phase}`: {reason}",
            "its agent died, or the network between the nodes did",
            f"see {name}'s last log lines, and the scheduler's view of the node",
            node=name,
        )
        outcome, code = (FAILED, 1) if self.driving else ("blocked", 3)
        self.stop(Cause(outcome, code, self.phase, (finding,)))

    def _on_quiet(self, index: int, seconds: float) -> None:
        """A node that came back: the run goes on, and the report says why a step took long."""
        name = self.who.hosts[index]
        data = {"what": "quiet", "seconds": round(seconds, 1)}
        self.record.log.emit(self.phase, "progress", node=name, data=data)
        what = f"node `{name}` sent nothing for more than {QUIET_S:.0f} s, and came back"
        why, fix = (
            "the node, or the network between the nodes, stood still",
            "see the site's log of that time",
        )
        self.record.find(self.phase, warning("node.quiet", what, why, fix, node=name))

    def _on_refused(self, address: str, reason: str) -> None:
        self.record.log.emit("preflight", "progress", data={"refused": address, "reason": reason})

    def _on_message(self, index: int, message: Mapping[str, Any]) -> None:
        """What a node says between replies."""
        name = self.who.hosts[index]
        if "signal" in message:
            self.stop_by_signal(int(message["signal"]), name)
        elif "finding" in message:
            finding = replace(Finding.from_json(message["finding"]), node=name)
            phase = str(message["phase"])
            if not finding.is_error:
                self.record.find(self.phase, finding)
            elif phase in ("services", "kept_ray"):  # no part of what is tested
                self.stop(blocked(self.phase, finding))
            elif self.driving:
                self.stop(Cause(FAILED, 1, self.phase, (finding,)))
            else:
                self.stop(blocked(phase, finding))
        elif "progress" in message:
            self.record.log.emit(str(message["phase"]), "progress", node=name, data=message["progress"])

    # What the phases ask and note.

    def gather(
        self,
        phase: str,
        calls: Sequence[Call],
        deadline_s: Optional[float],
        enough: Callable[[Call], bool] = lambda _call: False,
    ) -> None:
        """Until all have answered, or one is `enough`; who is late blocks the run.

        Raises: RunStoppedError.
        """
        try:
            self.nodes.gather(calls, deadline_s, enough=enough)
        except DeadlineError as missed:
            late = [_too_late(self.who.hosts[index], phase, deadline_s) for index in missed.indices]
            self.fail(phase, *late)

    def replies(self, phase: str, calls: Sequence[Call], deadline_s: Optional[float]) -> Dict[int, Reply]:
        """The replies of all nodes; errors among their findings block the run. Raises: RunStoppedError."""
        start = time.time()
        # In preflight all nodes are heard; later one fault is enough to stop the copying of a terabyte.
        enough = _no_errors if phase == "preflight" else _has_errors
        self.gather(phase, calls, deadline_s, enough)
        self.nodes.settle(calls, FURTHER_FAULTS_S)
        replies = {call.index: call.reply for call in calls if call.reply is not None}
        errors: List[Finding] = []
        for index, reply in replies.items():
            node_errors = self.note(phase, index, reply)
            outcome = "blocked" if node_errors else ("cached" if reply.get("cached") else "ok")
            data = {key: reply[key] for key in TOLD if reply.get(key)}
            name = self.who.hosts[index]
            if phase != "ray" or node_errors:  # there the reply only says that it was started
                seconds = time.time() - start
                self.record.log.emit(phase, "end", node=name, outcome=outcome, seconds=seconds, data=data)
            errors.extend(node_errors)
        if errors:
            self.fail(phase, *errors)
        if len(replies) < len(calls):
            raise RunStoppedError  # a node was lost: `_on_lost` has the cause
        return replies

    def note(self, phase: str, index: int, reply: Reply) -> List[Finding]:
        """Record a reply's findings with the node's name; the errors among them."""
        findings = [Finding.from_json(row) for row in reply.get("findings", ())]
        named = [replace(finding, node=finding.node or self.who.hosts[index]) for finding in findings]
        for finding in named:
            self.record.find(phase, finding)
        return [finding for finding in named if finding.is_error]

    @property
    def ips(self) -> List[str]:
        return [str(row["ip"]) for row in self.record.nodes]

    def enter(self, phase: str) -> PhaseTimes:
        self.phase = phase
        return self.record.begin(phase)


def _no_errors(_call: Call) -> bool:
    return False


def _has_errors(call: Call) -> bool:
    findings = (call.reply or {}).get("findings", ())
    return any(Finding.from_json(row).is_error for row in findings)


def _too_late(name: str, phase: str, deadline_s: Optional[float]) -> Finding:
    return error(
        f"{phase}.deadline",
        f"`{phase}` on node `{name}` has not ended within {deadline_s or 0:.0f} s",
        "a disk or mount of this node does not answer",
        "look at the node; its agent.log says what it has done",
        node=name,
    )
