"""The services of one node: each started and seen ready, watched, and ended with all that it started.

A service is a task as a command's is: its output passes through the agent into a log of its own, and secrets
are replaced on the way.
"""

from __future__ import annotations

import re
import signal
import sys
import threading
import time
from dataclasses import replace
from pathlib import Path
from typing import Any, Callable, Dict, List, Mapping, Optional, Set, Union

from jobspec.finding import WARNING, Finding, error
from jobspec.plan import CommandPlan, Plan, ServicePlan
from jobspec.runtime.base import network
from jobspec.runtime.base.channel import ChannelError, Link
from jobspec.runtime.base.full_disk import refusal
from jobspec.runtime.base.identity import Identity
from jobspec.runtime.base.log_tail import tail
from jobspec.runtime.base.redact import Redactor
from jobspec.runtime.base.service_places import Place, past_proxies, share_gpus, variables, visible_gpus
from jobspec.runtime.node import service_step
from jobspec.runtime.node.command_run import Ended, Running, Task, command_line, oom_kills
from jobspec.runtime.node.service_ready import Look, look_for

LOOK_S = 0.2
END_S = 5.0  # for the end of a process group that got SIGKILL, and of its output

Emit = Callable[[Mapping[str, Any]], None]


class Service:
    """One running service. `ready_s` is None until it is ready, `ended` until it has ended."""

    def __init__(self, plan: ServicePlan, place: Place, task: Task) -> None:
        self.plan, self.place, self.task = plan, place, task
        self._kills = oom_kills()
        self.ready_s: Optional[float] = None
        self.ended: Optional[Ended] = None
        self.over = threading.Event()
        self.stopped = False  # it was alive when it was told to end

    @property
    def state(self) -> str:
        if self.ready_s is None:
            return "starting" if self.ended is None or self.stopped else "failed"
        if self.stopped:
            return "stopped"
        return "ready" if self.ended is None else "died"

    @property
    def out_of_memory(self) -> bool:
        of_step = isinstance(self.task.child, service_step.StepProcess) and self.task.child.out_of_memory
        return of_step or oom_kills() > self._kills

    def row(self) -> Dict[str, Any]:
        """For results.json."""
        return {
            "name": self.plan.name,
            "port": self.place.port,
            "log": self.plan.log,
            "state": self.state,
            "ready_s": self.ready_s,
            "start": self.task.start,
            "end": self.ended.end if self.ended else 0.0,
            "exit_code": self.ended.exit_code if self.ended else None,
            "signal": self.ended.signal if self.ended else 0,
        }


class Services:
    """All services of this node."""

    def __init__(self, plan: Plan, who: Identity, logs: Path, redactor: Redactor, emit: Emit) -> None:
        self._plan, self._who, self._logs, self._redactor, self._emit = plan, who, logs, redactor, emit
        self._attempt = logs.parents[1]
        self._places: Dict[str, List[Place]] = {}
        self._visible: List[str] = []
        self._running: Dict[str, Service] = {}
        self._lock = threading.Lock()
        self._closed = False  # none may start any more

    def keep_gpus(self, env: Mapping[str, str], count: int) -> Dict[str, str]:
        """Variables that leave the services' GPUs out of what Ray and the commands see."""
        node = self._who.index
        self._visible = visible_gpus(self._plan, node, env, count)
        left = self._plan.driver_gpus_of(node)
        shared = left != self._plan.gpus_of(node)
        return {"CUDA_VISIBLE_DEVICES": ",".join(self._visible[:left])} if shared else {}

    def place(self, places: Mapping[str, Any], env: Mapping[str, str]) -> Dict[str, str]:
        """Learn where every service of the run will be; the variables that tell the programs of this node."""
        self._places = {name: [Place(*place) for place in listed] for name, listed in places.items()}
        return {**variables(self._places, self._who.index), **past_proxies(self._places, env)}

    def start(self, arguments: Mapping[str, Any], env: Mapping[str, str]) -> Dict[str, Any]:
        """Start a service and return when it is ready; the findings say why it is not."""
        plan = self._plan.services[int(arguments["index"])]
        place = next(place for place in self._places[plan.name] if place.node == self._who.index)
        if not place.port:
            return {"findings": []}  # preflight has said why
        if not network.port_free(place.port):
            return {"findings": [port_taken(plan, place.port).to_json()]}
        try:
            look = look_for(plan.ready, place, self._logs / plan.log)
        except re.error as problem:  # the login node's Python is newer, and has read it
            return self._reply(plan, _cannot_look(plan, problem))
        end, link = time.monotonic() + plan.ready.timeout_s, None
        if plan.container is not None:
            found = self._await_step(plan, end)
            if not isinstance(found, Link):
                return self._reply(plan, found)
            link = found
        try:
            service = self._begin(plan, place, env, link)
        except (OSError, ChannelError) as problem:
            if link is not None:  # what its step has started ends with the connection
                link.close()
            if isinstance(problem, ChannelError):
                return self._reply(plan, service_step.gone(self._attempt, plan, problem))
            return self._reply(plan, _cannot_start(plan, problem))
        if service is None:
            return {"findings": []}
        missing = self._await_ready(service, look, end)
        found = _not_ready(service, missing, self._logs) if missing and not service.stopped else None
        if missing:
            self._end(service, END_S)
        return {"service": service.row(), **self._reply(plan, found)}

    def _await_step(self, plan: ServicePlan, end: float) -> Union[Link, Finding, None]:
        """The way into its container, or why there is none; None where none may start any more."""
        while not self._closed:
            link = service_step.find(self._who, plan)
            if link is not None:
                return link
            failed = service_step.ended(self._attempt, plan)
            if failed is not None or time.monotonic() > end:
                return failed or service_step.late(self._attempt, plan)
            time.sleep(LOOK_S)
        return None

    def _begin(
        self, plan: ServicePlan, place: Place, env: Mapping[str, str], link: Optional[Link]
    ) -> Optional[Service]:
        """Raises: OSError when the program cannot start, ChannelError when its step has gone."""
        gpus = share_gpus(self._plan, self._who.index, self._visible)[plan.name]
        variables = {**env, "PORT": str(place.port), "CUDA_VISIBLE_DEVICES": ",".join(gpus)}
        argv = command_line(CommandPlan(plan.name, plan.argv, plan.shell))
        child: Optional[Running] = None
        if link is not None:
            child = service_step.StepProcess(link, service_step.handed_on(self._plan, variables))
        # Without the lock: the log may be on a file system that does not answer, and `stop` must not wait.
        task = Task(argv, variables, "", self._logs / plan.log, self._redactor, False, 0, child)
        with self._lock:
            closed = self._closed
            if not closed:
                service = self._running[plan.name] = Service(plan, place, task)
        if closed:
            task.child.terminate(0.0)
            return None
        threading.Thread(target=self._watch, args=(service,), daemon=True, name=plan.name).start()
        return service

    def _await_ready(self, service: Service, look: Look, end: float) -> str:
        """What is missing at the end of the wait; empty for a service that is ready."""
        while True:
            missing = look()
            with self._lock:
                if service.ended is not None or service.stopped:
                    return "it ended"
                if not missing:
                    service.ready_s = time.time() - service.task.start
                    return ""
            if time.monotonic() > end:
                return missing
            service.over.wait(LOOK_S)

    def _watch(self, service: Service) -> None:
        """Until it ends; one that ends too early is told to the head at once."""
        ended = service.task.finish()
        with self._lock:
            service.ended = ended
            died = service.state == "died"
        if died:
            finding = _of(service.plan, _died(service, self._logs))
            self._emit({"phase": "services", "finding": finding.to_json()})
        service.over.set()

    def pids(self) -> Set[int]:
        """All processes of the services that run here."""
        with self._lock:
            running = [service for service in self._running.values() if service.ended is None]
        return {pid for service in running for pid in service.task.child.members()}

    def stop(self, grace_s: float) -> Dict[str, Any]:
        """End all: SIGTERM to everything that each has started, SIGKILL after `grace_s`. Idempotent."""
        with self._lock:
            self._closed = True
            services = list(self._running.values())
            for service in services:
                # One that has ended may still be closing its log.
                service.stopped = service.stopped or service.task.child.running()
        threads = [threading.Thread(target=self._end, args=(service, grace_s)) for service in services]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        return {"services": [service.row() for service in services]}

    def _end(self, service: Service, grace_s: float) -> None:
        service.task.child.terminate(grace_s)
        service.over.wait(END_S)

    def _reply(self, plan: ServicePlan, finding: Optional[Finding]) -> Dict[str, Any]:
        return {"findings": [_of(plan, finding).to_json()] if finding is not None else []}


def _of(plan: ServicePlan, finding: Finding) -> Finding:
    """One that the run can do without ends nothing."""
    return finding if plan.required else replace(finding, severity=WARNING)


def port_taken(plan: ServicePlan, port: int) -> Finding:
    """`port` is 0 where none of those that jobspec gives is free."""
    what = f"port {port} of service `{plan.name}` is in use on this node"
    fix = "leave `port` out: the service gets a free one in PORT"
    if not port:
        what = f"no port is free on this node for service `{plan.name}`"
        fix = "give the job its own nodes (`resources.exclusive: true`)"
    why = "a program that was left behind, or one of another job, listens there"
    return _of(plan, error("service.port-taken", what, why, fix))


def _cannot_start(plan: ServicePlan, problem: OSError) -> Finding:
    why, fix = refusal(problem)
    what = f"service `{plan.name}` cannot start: `{problem.filename or plan.argv[0]}`: {why}"
    fix = fix or "name a program that the container has"
    return error("service.cannot-start", what, fix=fix)


def _cannot_look(plan: ServicePlan, problem: re.error) -> Finding:
    version = ".".join(map(str, sys.version_info[:2]))
    what = f"Python {version} of the run cannot read `ready.log` of service `{plan.name}`: {problem}"
    fix = f"write `{plan.ready.text}` without what newer versions of Python added, such as `a++`"
    return error("service.not-ready", what, fix=fix)


def _not_ready(service: Service, missing: str, logs: Path) -> Finding:
    if service.ended is not None:
        return replace(_died(service, logs), rule="service.not-ready")
    plan = service.plan
    return error(
        "service.not-ready",
        f"service `{plan.name}` is not ready after {plan.ready.timeout_s:.0f} s: {missing}",
        _last_lines(service, logs),
        "correct its `ready`, or raise `ready.timeout`",
        file=_log(service, logs),
    )


def _died(service: Service, logs: Path) -> Finding:
    ended = service.ended
    number = ended.signal if ended else 0
    how = f"exited with {ended.exit_code}" if ended else "ended"
    if number:
        how = f"was ended by signal {number} ({signal.strsignal(number)})"
    when = "before it was ready" if service.ready_s is None else "while the run needed it"
    memory = "; the kernel ended processes of this job here: out of memory" * service.out_of_memory
    return error(
        "service.ended",
        f"service `{service.plan.name}` {how} {when}{memory}",
        _last_lines(service, logs),
        "read the end of its log; a service stays in the foreground until it gets SIGTERM",
        file=_log(service, logs),
    )


def _last_lines(service: Service, logs: Path) -> str:
    return tail(logs / service.plan.log) or "its log is empty"


def _log(service: Service, logs: Path) -> str:
    """As results.json names logs: relative to the attempt's folder."""
    return f"logs/{logs.name}/{service.plan.log}"
