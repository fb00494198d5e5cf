"""The head's part of the services: where they are, their start in order, their end, and what is recorded."""

from __future__ import annotations

import threading
import time
from typing import Any, Dict, List, Mapping, Sequence

from jobspec.plan import ServicePlan
from jobspec.runtime.head.attempt import Attempt
from jobspec.runtime.head.nodes import Call
from jobspec.runtime.head.record import blocked
from jobspec.runtime.node import service_step

STOP_GRACE_S = 5.0
HURRY_GRACE_S = 2.0  # after a signal or a fault: Slurm ends the step by itself soon
LOOK_S = 0.5
SLACK_S = 8.0  # for SIGKILL to act, and the answers
PLACE_S = 30.0  # a node only notes the addresses
BEGIN_S = 20.0  # beside the wait for `ready`: to open the log and start the program


def place(attempt: Attempt, ports: Sequence[Mapping[str, int]]) -> None:
    """Tell every node where all services will be, before Ray starts: its workers inherit the addresses.

    `ports` are those of each node by service. Raises: RunStoppedError.
    """
    if not attempt.plan.services:
        return
    places: Dict[str, List[Any]] = {
        service.name: [[node, attempt.ips[node], ports[node].get(service.name, 0)] for node in service.nodes]
        for service in attempt.plan.services
    }
    calls = attempt.nodes.call_all("place_services", {"places": places})
    attempt.gather("preflight", calls, PLACE_S)
    errors = [found for call in calls for found in attempt.note("preflight", call.index, call.reply or {})]
    if errors:
        attempt.fail("preflight", *errors)
    steps = [service for service in attempt.plan.services if service.container and service.required]
    if steps:
        threading.Thread(target=_watch, args=(attempt, steps), daemon=True, name="steps").start()


def _watch(attempt: Attempt, services: Sequence[ServicePlan]) -> None:
    """A container that has not started ends the run before it does all that comes before the services.

    From then on each node looks for itself.
    """
    while attempt.cause is None and attempt.phase not in ("services", "driver", "collect"):
        for service in services:
            failed = service_step.ended(attempt.node.paths.attempt, service)
            if failed is not None:
                attempt.stop(blocked(attempt.phase, failed))
                return
        time.sleep(LOOK_S)


def start(attempt: Attempt) -> None:
    """Start the services in order, each on all its nodes: one may ask those before it.

    Raises: RunStoppedError.
    """
    if not attempt.plan.services:
        return
    times = attempt.enter("services")
    for index, service in enumerate(attempt.plan.services):
        attempt.go_on()
        attempt.record.log.emit("services", "progress", data={"what": "service", "name": service.name})
        calls = [attempt.nodes.call(node, "service", {"index": index}) for node in service.nodes]
        try:
            attempt.replies("services", calls, service.ready.timeout_s + BEGIN_S)
        finally:
            _note(attempt, calls)
    attempt.record.end(times, "ok")


def stop(attempt: Attempt) -> None:
    """End the services, after the commands: those may ask them to their end."""
    if not attempt.plan.services:
        return
    grace = STOP_GRACE_S if attempt.cause is None else HURRY_GRACE_S
    calls = attempt.nodes.call_all("stop_services", {"grace_s": grace})
    attempt.nodes.settle(calls, grace + SLACK_S)
    _note(attempt, calls)


def _note(attempt: Attempt, calls: Sequence[Call]) -> None:
    """Record what the nodes say of their services; the last word counts."""
    for call in calls:
        reply = call.reply or {}
        name = attempt.who.hosts[call.index]
        for row in reply.get("services", [reply["service"]] if "service" in reply else []):
            log = f"logs/{name}/{row['log']}"
            attempt.record.services[(row["name"], name)] = {**row, "node": name, "log": log}
