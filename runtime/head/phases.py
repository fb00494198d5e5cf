"""The head agent: brings the nodes through the phases and writes what happened.

preflight -> code -> (stage | helpers -> imports | ray, side by side) -> checks -> services -> driver ->
collect. Whatever goes wrong, the first cause ends every wait, commands, services and Ray are stopped, logs
are collected from the nodes that are left, and results.json is written.
"""

from __future__ import annotations

import contextlib
import os
import signal
import threading
import time
from typing import Any, Callable, List, Mapping, Optional, Sequence

from jobspec.finding import Finding, error
from jobspec.plan import CommandPlan, Plan
from jobspec.runtime.base import canary, procs, signals, upstream_marks
from jobspec.runtime.base.identity import Identity
from jobspec.runtime.base.signals import Received
from jobspec.runtime.checkouts.imports import IMPORT_TIMEOUT_S
from jobspec.runtime.checkouts.mcore_helpers import BUILD_TIMEOUT_S
from jobspec.runtime.checkouts.mcore_probe import ASK_TIMEOUT_S
from jobspec.runtime.head import held, metric_watch, services, shutdown, stall_watch
from jobspec.runtime.head.attempt import Attempt
from jobspec.runtime.head.kept_ray import KeptRay
from jobspec.runtime.head.nodes import DeadlineError, RunStoppedError
from jobspec.runtime.head.ray_bringup import AdoptedRay, RayBringUp
from jobspec.runtime.head.record import FAILED, Cause
from jobspec.runtime.head.rendezvous import meet
from jobspec.runtime.node.agent import Reply

PREFLIGHT_S = 90.0  # the canary may take 20 s, sizing a source on a slow shared disk longer
CODE_S = 600.0  # git on a large checkout on a slow shared disk
# The node's own deadlines come first and say more; these are for one that hangs on a dead disk or mount.
HELPERS_S = BUILD_TIMEOUT_S + 3 * ASK_TIMEOUT_S
IMPORTS_S = IMPORT_TIMEOUT_S + 60.0
STOP_ALL_RANKS_S = 10.0  # for the other ranks, when one has failed
KEEP_S = 10.0  # for a node to list its processes
LOCAL_GRACE_S = 10.0  # least time to stop and collect in before a local run's time limit


def run_head(plan: Plan, who: Identity, env: Mapping[str, str]) -> int:
    """Run the attempt; the exit status of the job."""
    return Phases(Attempt(plan, who, env)).run()


class Phases:
    """The phases of one attempt, in order."""

    def __init__(self, attempt: Attempt) -> None:
        self.attempt = attempt
        self.plan = attempt.plan
        self.who = attempt.who
        self.nodes = attempt.nodes
        self.record = attempt.record
        self._proofs: List[Mapping[str, str]] = []
        self._ray: Optional[RayBringUp] = None
        self._master_port = 0
        self._stage_peers: List[List[Any]] = []
        self._service_ports: List[Mapping[str, int]] = []

    def run(self) -> int:
        received = signals.receive()
        threading.Thread(target=self._follow_signals, args=(received,), daemon=True, name="stop").start()
        self._watch_time_limit(received)
        if self.plan.upstream is not None:
            upstream_marks.follow_signals(self.attempt.node.paths.attempt, received.put)
        try:
            self._preflight()
            self._code()
            self._bring_up()
            self._work()
        except RunStoppedError:
            pass  # `cause` says why
        except Exception:  # noqa: BLE001 - results.json must be written, and the nodes sent home
            self.attempt.stop_for_bug()
        return shutdown.finish(self.attempt, self._ray)

    def _follow_signals(self, received: Received) -> None:
        while True:
            number = received.get()
            if procs.guard_is_gone():
                self.attempt.stop_for_guard()
            self.attempt.stop_by_signal(number)

    def _watch_time_limit(self, received: Received) -> None:
        """A local run has no scheduler that ends it: warn ourselves as Slurm's --signal would."""
        limit = self.plan.time_limit_s
        if self.plan.scheduler != "local" or limit is None:
            return
        grace = min(max(LOCAL_GRACE_S, float(self.plan.slurm.grace_s)), limit / 2)
        timer = threading.Timer(limit - grace, received.put, args=(signal.SIGUSR1,))
        timer.daemon = True
        timer.start()

    def _preflight(self) -> None:
        times = self.record.begin("preflight")
        nonce = os.urandom(16).hex()
        attempt = self.attempt.node.paths.attempt
        canary.write_canary(attempt, nonce)
        meet(self.attempt)
        calls = []
        for index in range(len(self.who.hosts)):  # a lost node is missing among the replies
            arguments = {"nonce": nonce, "time": time.time(), "reached": self.nodes.ip(index)}
            calls.append(self.nodes.call(index, "preflight", arguments))
        replies = self.attempt.replies("preflight", calls, PREFLIGHT_S)
        self._describe_nodes(replies)
        unseen = canary.read_answers(attempt, self.who.hosts, nonce)
        if unseen:
            self.attempt.fail("preflight", *(_canary_unseen(name, str(attempt)) for name in unseen))
        services.place(self.attempt, self._service_ports)
        self.record.end(times, "ok")

    def _describe_nodes(self, replies: Mapping[int, Reply]) -> None:
        for index in sorted(replies):
            reply = replies[index]
            row = {key: reply.get(key) for key in ("ip", "gpus", "cpus", "ports", "facts")}
            self.record.nodes.append({"name": self.who.hosts[index], "index": index, **row})
            self._service_ports.append(reply["service_ports"])
            self._stage_peers.append([self.who.hosts[index], str(reply["ip"]), int(reply["stage_port"])])
        self._master_port = int(self.record.nodes[0]["ports"][-1])

    def _code(self) -> None:
        """Whether the checkouts are those that were submitted; the head alone looks: they are shared."""
        if not any(repo.on_change for repo in self.plan.repos):
            return
        times = self.attempt.enter("code")
        call = self.nodes.call(0, "code", {})
        try:
            self.attempt.replies("code", [call], CODE_S)
        finally:  # also what blocks the run is recorded
            self.record.code = (call.reply or {}).get("code", {})
        self.record.end(times, "ok")

    def _bring_up(self) -> None:
        """Everything between preflight and driver, side by side. Raises: RunStoppedError."""
        jobs: List[Callable[[], None]] = [self._stage, self._helpers_and_imports]
        if self.plan.ray is not None or self.plan.upstream is not None:
            own = KeptRay if self.plan.kept_ray else RayBringUp
            self._ray = own(self.attempt) if self.plan.upstream is None else AdoptedRay(self.attempt)
            jobs.append(self._ray.run)
        threads = [threading.Thread(target=self._run_phase, args=(job,), name="phase") for job in jobs]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.attempt.go_on()
        if self._ray is None:
            self.record.skip("ray")
        else:
            proofs = [*self.plan.proofs, *shutdown.proofs(self._proofs)]
            self._ray.prove(proofs)
            self._keep_ray(offered=False)

    def _keep_ray(self, offered: bool) -> None:
        """A held run's Ray is for runs that come to its allocation: note what it is, then offer it."""
        if self.plan.hold and self.plan.ray is not None:
            calls = self.nodes.call_all("keep_ray", {"offered": offered})
            self.nodes.settle(calls, KEEP_S)

    def _run_phase(self, job: Callable[[], None]) -> None:
        """Run one of the phases that go side by side; what ends it early ends the others too."""
        try:
            job()
        except RunStoppedError:
            return  # `cause` says why
        except Exception:  # noqa: BLE001 - the main thread waits for all of them
            self.attempt.stop_for_bug()

    def _stage(self) -> None:
        # Without a deadline: each node watches that its bytes move, and gives up when they do not.
        self._simple("stage", bool(self.plan.stage), {"peers": self._stage_peers}, None)
        self.nodes.call_all("stage_end")

    def _helpers_and_imports(self) -> None:
        replies = self._simple("helpers", self.plan.helpers is not None, None, HELPERS_S)
        self._proofs = [reply["proof"] for reply in replies.values() if "proof" in reply][:1]
        needed = bool(self.plan.proofs or self._proofs)
        proved = self._simple("imports", needed, {"more": self._proofs}, IMPORTS_S)
        for index, reply in proved.items():
            for module, file in reply["files"].items():
                self.record.imports.setdefault(module, {})[self.who.hosts[index]] = file

    def _simple(
        self, phase: str, needed: bool, arguments: Optional[Mapping[str, Any]], deadline_s: Optional[float]
    ) -> Mapping[int, Reply]:
        """A phase that is one operation on every node."""
        if not needed:
            self.record.skip(phase)
            return {}
        self.attempt.phase = phase
        times = self.record.begin(phase)
        replies = self.attempt.replies(phase, self.nodes.call_all(phase, arguments), deadline_s)
        cached = all(reply.get("cached") for reply in replies.values())
        self.record.end(times, "cached" if cached else "ok")
        return replies

    def _work(self) -> None:
        """The checkouts' tests, then the commands; then, with `hold`, wait to be told to end.

        Raises: RunStoppedError.
        """
        # A run without tests has no such phase: it would be one more line that says nothing.
        if not self.plan.checks or self._run_commands("checks", self.plan.checks):
            services.start(self.attempt)
            self.attempt.driving = True
            self._drive()
        if self.plan.hold:
            self._hold()
        if self.attempt.cause is not None:
            raise RunStoppedError

    def _drive(self) -> None:
        """The commands, beside them the watches over their work and over their metrics."""
        stall = stall_watch.of_attempt(self.attempt)
        try:
            self._watch_metrics()
        finally:
            stall.close()

    def _watch_metrics(self) -> None:
        if not self.plan.abort_when:
            self._run_commands("driver", self.plan.commands)
            return
        watch = metric_watch.Watch(self.attempt.node.paths.metrics, self.plan.abort_when)
        watcher = metric_watch.Watcher(
            watch, lambda tripped: self.attempt.stop(Cause(FAILED, 1, "driver", (tripped.finding(),)))
        )
        try:
            self._run_commands("driver", self.plan.commands)
        finally:
            watcher.close()

    def _run_commands(self, phase: str, commands: Sequence[CommandPlan]) -> bool:
        """Run `commands` in order as `phase`, until one fails; whether all ended well."""
        self.attempt.go_on()
        times = self.attempt.enter(phase)
        for index, command in enumerate(commands):
            self.attempt.go_on()
            if not self._run_command(phase, index, command):
                outcome = self.attempt.cause.outcome if self.attempt.cause is not None else FAILED
                self.record.end(times, outcome if phase == "checks" else FAILED)
                return False
        self.record.end(times, "ok")
        return True

    def _hold(self) -> None:
        """Keep the nodes and Ray until a signal, which is the intended end here and no failure."""
        if self.attempt.signals:
            return
        before = self.attempt.cause
        self.attempt.held = before is None
        if self.attempt.held:  # what a failed run leaves is not looked at
            self._keep_ray(offered=True)
        self.record.log.emit(self.attempt.phase, "progress", data={"what": "hold"})
        self._await_end_of_hold(before)

    def _await_end_of_hold(self, before: Optional[Cause]) -> None:
        """A signal, another cause than `before`, or nobody who uses the run for as long as it may be idle."""
        limit = self.plan.hold_idle_s
        idle = held.Idle(self.attempt.node.paths.attempt / "steps", limit or 0, time.monotonic())
        while True:
            with contextlib.suppress(DeadlineError):
                self.nodes.wait(
                    lambda: self.attempt.signals > 0 or self.attempt.cause is not before,
                    None if limit is None else held.LOOK_S,
                    list,
                    calm=True,
                )
                return
            if idle.over(time.monotonic()):
                self.record.find("driver", held.ended(limit or 0))
                return

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
        ended_well = shutdown.note_command(self.attempt, phase, command, calls)
        if ended_well and any(call.reply is None for call in calls):
            raise RunStoppedError  # a node was lost: `_on_lost` has the cause
        return ended_well

    def _ip(self, index: int) -> str:
        return str(self.record.nodes[index]["ip"])


def _failed(reply: Reply) -> bool:
    return any(task["exit_code"] for task in reply.get("ended", ())) or not reply.get("ended")


def _canary_unseen(name: str, attempt: str) -> Finding:
    return error(
        "preflight.shared-dir",
        f"the head does not see the file that node `{name}` wrote in `{attempt}`",
        "the folder is not the same storage on both nodes",
        "put `paths.runs` on storage that every node mounts",
        node=name,
    )
