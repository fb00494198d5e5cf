"""The head agent: brings the nodes through the phases and writes what happened.

preflight -> (stage | helpers -> imports | ray, side by side) -> checks -> driver -> collect. Whatever goes
wrong, the first cause ends every wait, the commands and Ray are stopped, logs are collected from the nodes
that are left, and results.json is written.
"""

from __future__ import annotations

import os
import signal
import threading
import time
import traceback
from dataclasses import replace
from typing import Any, Callable, Dict, List, Mapping, Optional, Sequence

from jobspec.finding import Finding, error
from jobspec.plan import CommandPlan, Plan
from jobspec.runtime import upstream_agents
from jobspec.runtime.base import canary, signals
from jobspec.runtime.base.events import EventLog
from jobspec.runtime.base.identity import Identity
from jobspec.runtime.base.signals import Received
from jobspec.runtime.head import metric_watch, shutdown
from jobspec.runtime.head.nodes import Call, DeadlineError, Nodes, RunStoppedError
from jobspec.runtime.head.ray_bringup import AdoptedRay, RayBringUp
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
from jobspec.runtime.head.rendezvous import meet
from jobspec.runtime.node.agent import Node, Reply

PREFLIGHT_S = 90.0  # the canary may take 20 s, sizing a source on a slow shared disk longer
FURTHER_FAULTS_S = 2.0  # after the first fault: others may have the same one, and are named with it
STOP_ALL_RANKS_S = 10.0  # for the other ranks, when one has failed
LOCAL_GRACE_S = 10.0  # least time to stop and collect in before a local run's time limit
TOLD = ("bytes", "received", "ready", "files", "library")  # of a node's reply, in the event of its end


def run_head(plan: Plan, who: Identity, env: Mapping[str, str]) -> int:
    """Run the attempt; the exit status of the job."""
    return Head(plan, who, env).run()


class Head:
    """One attempt of a run, as its head node drives it."""

    def __init__(self, plan: Plan, who: Identity, env: Mapping[str, str]) -> None:
        self.plan = plan
        self.who = who
        self.node = Node(plan, who, env, lambda message: self._on_message(0, message))
        paths = self.node.paths
        log = EventLog(paths.attempt / "events.jsonl", self.node.redactor)
        self.record = Record(who.attempt, paths.attempt, log, self.node.redactor)
        self.nodes = Nodes(who, self._on_message, self._on_joined, self._on_lost, self._on_refused)
        self.nodes.set_local(self.node)
        self.cause: Optional[Cause] = None
        self._judged = False
        self.signals = 0
        self.phase = "preflight"
        self._driving = False
        self._proofs: List[Mapping[str, str]] = []
        self.ray: Optional[RayBringUp] = None
        self._master_port = 0
        self._stage_peers: List[List[Any]] = []

    def run(self) -> int:
        received = signals.receive()
        threading.Thread(target=self._follow_signals, args=(received,), daemon=True, name="stop").start()
        self._watch_time_limit(received)
        if self.plan.upstream is not None:
            upstream_agents.follow_signals(self.node.paths.attempt, received.put)
        try:
            self._preflight()
            self._bring_up()
            self._work()
        except RunStoppedError:
            pass  # `cause` says why
        except Exception:  # noqa: BLE001 - results.json must be written, and the nodes sent home
            self._stop_for_bug()
        return shutdown.finish(self)

    # What ends a run. Any thread may call these.

    def stop(self, cause: Cause) -> None:
        """End every wait. The first cause counts; findings of later ones are kept."""
        with self.nodes.changed:  # a cause is never seen without its findings
            if self._judged:
                return
            if self.cause is None:
                self.cause = replace(cause, phase=cause.phase or self.phase)
            for finding in cause.findings:
                self.record.find(cause.phase or self.phase, finding)
            self.nodes.stop()

    def judge(self) -> Optional[Cause]:
        """The cause that the results state. What goes wrong from now on is no part of the run."""
        with self.nodes.changed:
            self._judged = True
            return self.cause

    def _stop_for_bug(self) -> None:
        """Stop for the exception that is being handled."""
        self.node.say(traceback.format_exc())
        what = f"the head failed in `{self.phase}`: {traceback.format_exc().strip().splitlines()[-1]}"
        why, fix = "this is a bug in jobspec", "see agent.log of this node"
        found = error("runtime.bug", what, why, fix, node=self.who.name)
        self.stop(Cause(FAILED, 1, self.phase, (found,)))

    def fail(self, phase: str, *findings: Finding) -> None:
        """Stop for a reason outside what is tested. Raises: RunStoppedError."""
        self.stop(blocked(phase, *findings))
        raise RunStoppedError

    def _follow_signals(self, received: Received) -> None:
        while True:
            number = received.get()
            self.signals += 1
            self.stop(by_signal(number))

    def _watch_time_limit(self, received: Received) -> None:
        """A local run has no scheduler that ends it: warn ourselves as Slurm's --signal would."""
        limit = self.plan.time_limit_s
        if self.plan.scheduler != "local" or limit is None:
            return
        grace = min(max(LOCAL_GRACE_S, float(self.plan.slurm.grace_s)), limit / 2)
        timer = threading.Timer(limit - grace, received.put, args=(signal.SIGUSR1,))
        timer.daemon = True
        timer.start()

    def _on_joined(self, index: int, address: str) -> None:
        data = {"what": "joined", "address": address}
        self.record.log.emit("preflight", "progress", node=self.who.hosts[index], data=data)

    def _on_lost(self, index: int, reason: str) -> None:
        name = self.who.hosts[index]
        finding = error(
            "node.lost",
            f"node `{name}` left during `{self.phase}`: {reason}",
            "its agent died, or the network between the nodes did",
            f"see {name}'s last log lines, and the scheduler's view of the node",
            node=name,
        )
        outcome, code = (FAILED, 1) if self._driving else ("blocked", 3)
        self.stop(Cause(outcome, code, self.phase, (finding,)))

    def _on_refused(self, address: str, reason: str) -> None:
        self.record.log.emit("preflight", "progress", data={"refused": address, "reason": reason})

    def _on_message(self, index: int, message: Mapping[str, Any]) -> None:
        """What a node says between replies."""
        name = self.who.hosts[index]
        if "signal" in message:
            self.signals += 1
            self.stop(by_signal(int(message["signal"])))
        elif "finding" in message:
            finding = replace(Finding.from_json(message["finding"]), node=name)
            phase = str(message["phase"])
            if self._driving:
                self.stop(Cause(FAILED, 1, self.phase, (finding,)))
            else:
                self.stop(blocked(phase, finding))
        elif "progress" in message:
            self.record.log.emit(str(message["phase"]), "progress", node=name, data=message["progress"])

    # The phases.

    def _preflight(self) -> None:
        times = self.record.begin("preflight")
        nonce = os.urandom(16).hex()
        attempt = self.node.paths.attempt
        canary.write_canary(attempt, nonce)
        meet(self)
        calls = []
        for index in range(len(self.who.hosts)):  # one that is lost by now is missed among the replies
            arguments = {"nonce": nonce, "time": time.time(), "reached": self.nodes.ip(index)}
            calls.append(self.nodes.call(index, "preflight", arguments))
        replies = self.replies("preflight", calls, PREFLIGHT_S)
        self._describe_nodes(replies)
        unseen = canary.read_answers(attempt, self.who.hosts, nonce)
        if unseen:
            self.fail("preflight", *(_canary_unseen(name, str(attempt)) for name in unseen))
        self.record.end(times, "ok")

    def _describe_nodes(self, replies: Mapping[int, Reply]) -> None:
        for index in sorted(replies):
            reply = replies[index]
            row = {key: reply.get(key) for key in ("ip", "gpus", "cpus", "ports", "facts")}
            self.record.nodes.append({"name": self.who.hosts[index], "index": index, **row})
            self._stage_peers.append([self.who.hosts[index], str(reply["ip"]), int(reply["stage_port"])])
        self._master_port = int(self.record.nodes[0]["ports"][-1])

    def _bring_up(self) -> None:
        """Everything between preflight and driver, side by side. Raises: RunStoppedError."""
        jobs: List[Callable[[], None]] = [self._stage, self._helpers_and_imports]
        if self.plan.ray is not None or self.plan.upstream is not None:
            self.ray = RayBringUp(self) if self.plan.upstream is None else AdoptedRay(self)
            jobs.append(self.ray.run)
        threads = [threading.Thread(target=self._run_phase, args=(job,), name="phase") for job in jobs]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self._go_on()
        if self.ray is None:
            self.record.skip("ray")
        else:
            proofs = [*self.plan.proofs, *shutdown.proofs(self._proofs)]
            self.ray.prove(proofs)

    def _run_phase(self, job: Callable[[], None]) -> None:
        """Run one of the phases that go side by side; what ends it early ends the others too."""
        try:
            job()
        except RunStoppedError:
            return  # `cause` says why
        except Exception:  # noqa: BLE001 - the main thread waits for all of them
            self._stop_for_bug()

    def _stage(self) -> None:
        self._simple("stage", bool(self.plan.stage), {"peers": self._stage_peers})
        self.nodes.call_all("stage_end")

    def _helpers_and_imports(self) -> None:
        replies = self._simple("helpers", self.plan.helpers is not None, None)
        self._proofs = [reply["proof"] for reply in replies.values() if "proof" in reply][:1]
        wanted = bool(self.plan.proofs or self._proofs)
        found = self._simple("imports", wanted, {"more": self._proofs})
        for index, reply in found.items():
            for module, file in reply["files"].items():
                self.record.imports.setdefault(module, {})[self.who.hosts[index]] = file

    def _simple(
        self, phase: str, wanted: bool, arguments: Optional[Mapping[str, Any]]
    ) -> Mapping[int, Reply]:
        """A phase that is one operation on every node."""
        if not wanted:
            self.record.skip(phase)
            return {}
        self.phase = phase
        times = self.record.begin(phase)
        replies = self.replies(phase, self.nodes.call_all(phase, arguments), None)
        cached = all(reply.get("cached") for reply in replies.values())
        self.record.end(times, "cached" if cached else "ok")
        return replies

    def replies(self, phase: str, calls: Sequence[Call], deadline_s: Optional[float]) -> Dict[int, Reply]:
        """The replies of all nodes; errors among their findings block the run. Raises: RunStoppedError."""
        start = time.time()
        # In preflight all nodes are heard; later one fault is enough to stop the copying of a terabyte.
        enough = _no_errors if phase == "preflight" else _has_errors
        try:
            self.nodes.gather(calls, deadline_s, enough=enough)
        except DeadlineError as missed:
            late = [_too_late(self.who.hosts[index], phase, deadline_s) for index in missed.indices]
            self.fail(phase, *late)
        self.nodes.settle(calls, FURTHER_FAULTS_S)
        replies = {call.index: call.reply for call in calls if call.reply is not None}
        errors: List[Finding] = []
        for index, reply in replies.items():
            found = self.note(phase, index, reply)
            outcome = "blocked" if found else ("cached" if reply.get("cached") else "ok")
            data = {key: reply[key] for key in TOLD if reply.get(key)}
            name = self.who.hosts[index]
            if phase != "ray" or found:  # there the reply only says that it was started
                seconds = time.time() - start
                self.record.log.emit(phase, "end", node=name, outcome=outcome, seconds=seconds, data=data)
            errors.extend(found)
        if errors:
            self.fail(phase, *errors)
        if len(replies) < len(calls):
            raise RunStoppedError  # a node was lost: `_on_lost` has the cause
        return replies

    def note(self, phase: str, index: int, reply: Reply) -> List[Finding]:
        """Record a reply's findings with the node's name; the errors among them."""
        found = [Finding.from_json(row) for row in reply.get("findings", ())]
        named = [replace(finding, node=finding.node or self.who.hosts[index]) for finding in found]
        for finding in named:
            self.record.find(phase, finding)
        return [finding for finding in named if finding.is_error]

    def _work(self) -> None:
        """The checkouts' tests, then the commands; then, with `hold`, wait to be told to end.

        Raises: RunStoppedError.
        """
        # A run without tests has no such phase: it would be one more line that says nothing.
        if not self.plan.checks or self._run_commands("checks", self.plan.checks):
            self._driving = True
            self._drive()
        if self.plan.hold:
            self._hold()
        if self.cause is not None:
            raise RunStoppedError

    def _drive(self) -> None:
        """The commands, and beside them the watch over their metrics."""
        if not self.plan.abort_when:
            self._run_commands("driver", self.plan.commands)
            return
        seen = metric_watch.Watch(self.node.paths.metrics, self.plan.abort_when)
        watcher = metric_watch.Watcher(
            seen, lambda found: self.stop(Cause(FAILED, 1, "driver", (found.finding(),)))
        )
        try:
            self._run_commands("driver", self.plan.commands)
        finally:
            watcher.close()

    def _run_commands(self, phase: str, commands: Sequence[CommandPlan]) -> bool:
        """Run `commands` in order as `phase`, until one fails; whether all ended well."""
        self._go_on()
        times = self.enter(phase)
        for index, command in enumerate(commands):
            self._go_on()
            if not self._run_command(phase, index, command):
                outcome = self.cause.outcome if self.cause is not None else FAILED
                self.record.end(times, outcome if phase == "checks" else FAILED)
                return False
        self.record.end(times, "ok")
        return True

    def _go_on(self) -> None:
        """Nothing is started any more once the run stops. Raises: RunStoppedError."""
        if self.cause is not None:
            raise RunStoppedError

    def _hold(self) -> None:
        """Keep the nodes and Ray until a signal; here it is the wished end, not a failure."""
        if self.signals:
            return
        before = self.cause
        self.record.log.emit(self.phase, "progress", data={"what": "hold"})
        self.nodes.wait(lambda: self.signals > 0 or self.cause is not before, None, list, calm=True)
        if before is None and self.cause is not None and self.cause.outcome in (CANCELLED, TIMEOUT):
            self.cause = None

    def _run_command(self, phase: str, index: int, command: CommandPlan) -> bool:
        master = {"master_addr": self._ip(0), "master_port": self._master_port}
        arguments = {"phase": phase, "index": index, "master": master, "env": {}}
        self.record.log.emit(phase, "progress", data={"what": "command", "name": command.name})
        if command.on == "all":
            calls = self.nodes.call_all("command", arguments)
        else:
            calls = [self.nodes.call(0, "command", arguments)]
        self.nodes.gather(calls, enough=lambda call: call.reply is not None and _failed(call.reply))
        if not all(call.done for call in calls):
            self.nodes.settle(self.nodes.call_all("stop_command", {"grace_s": 3.0}), STOP_ALL_RANKS_S)
            self.nodes.settle(calls, STOP_ALL_RANKS_S)
        ended_well = shutdown.note_command(self, phase, command, calls)
        if ended_well and any(call.reply is None for call in calls):
            raise RunStoppedError  # a node was lost: `_on_lost` has the cause
        return ended_well

    def _ip(self, index: int) -> str:
        return str(self.record.nodes[index]["ip"])

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


def _failed(reply: Reply) -> bool:
    return any(one["exit_code"] for one in reply.get("ended", ())) or not reply.get("ended")


def _too_late(name: str, phase: str, deadline_s: Optional[float]) -> Finding:
    return error(
        f"{phase}.deadline",
        f"`{phase}` on node `{name}` has not ended within {deadline_s or 0:.0f} s",
        "a disk or mount of this node does not answer",
        "look at the node; its agent.log says what it has done",
        node=name,
    )


def _canary_unseen(name: str, attempt: str) -> Finding:
    return error(
        "preflight.shared-dir",
        f"the head does not see the file that node `{name}` wrote in `{attempt}`",
        "the folder is not the same storage on both nodes",
        "put `paths.runs` on storage that every node mounts",
        node=name,
    )
