"""The head's part in the nodes' meeting: wait for all agents, and say why one does not come."""

from __future__ import annotations

import threading
import time

from jobspec.finding import Finding, error, warning
from jobspec.runtime.base import upstream_marks
from jobspec.runtime.base.channel import ANSWER_S, SILENCE_S, STANDSTILL_S, answers, candidate_ports
from jobspec.runtime.head.attempt import Attempt
from jobspec.runtime.head.nodes import DeadlineError, RunStoppedError
from jobspec.runtime.head.record import blocked
from jobspec.runtime.node.worker import join_deadline_s

PROBE_S = 1.0  # between two looks at a node that has not come


def meet(attempt: Attempt) -> None:
    """Wait for the agents of the other nodes; without any nothing listens. Raises: RunStoppedError."""
    if len(attempt.who.hosts) == 1:
        return
    if attempt.plan.upstream is not None:
        _need_setups(attempt)
    ports = candidate_ports(attempt.who.key)
    try:
        attempt.nodes.listen(ports)
    except OSError as problem:
        attempt.fail(
            "preflight",
            error(
                "preflight.coordination-ports",
                f"none of the ports {ports[0]}-{ports[-1]} is free on the head node: {problem.strerror}",
                "the nodes meet on one of them",
                "give the job its own nodes (`resources.exclusive: true`)",
                node=attempt.who.name,
            ),
        )
    deadline = join_deadline_s(attempt.plan)
    for index in attempt.nodes.absent():
        threading.Thread(target=_watch, args=(attempt, index, ports[0]), daemon=True, name="watch").start()
    try:
        attempt.nodes.wait_connected(deadline)
    except DeadlineError as missed:
        attempt.fail("preflight", *(_never_came(attempt, index, deadline) for index in missed.indices))
    except RunStoppedError:
        # srun ends all tasks when one fails: the node that is not here may be the reason.
        named = {finding.node for finding in attempt.cause.findings} if attempt.cause is not None else set()
        for index in attempt.nodes.absent():
            if attempt.who.hosts[index] in named:
                continue
            attempt.record.find("preflight", _not_there(attempt.who.hosts[index]))
        raise


def _watch(attempt: Attempt, index: int, port: int) -> None:
    """End the run when a node that has answered answers no more, before its agent has come.

    A living kernel refuses a connection at once. A node that never answers may be behind a firewall.
    """
    name, heard = attempt.who.hosts[index], 0.0
    while not attempt.nodes.stopped and index in attempt.nodes.absent():
        before = time.monotonic()
        answered, now = answers((name, port)), time.monotonic()
        if answered or (heard and now - before > ANSWER_S + STANDSTILL_S):  # we stood still ourselves
            heard = now
        elif heard and now - heard >= SILENCE_S:
            attempt.stop(blocked("preflight", _gone(name)))
            return
        time.sleep(PROBE_S)


def _gone(name: str) -> Finding:
    return error(
        "node.lost",
        f"node `{name}` left before its agent had connected: it answers nothing for {SILENCE_S:.0f} s",
        "the node lost power, or the network between the nodes failed",
        "see the scheduler's view of the node",
        node=name,
    )


def _need_setups(attempt: Attempt) -> None:
    failed = upstream_marks.failed_setups(attempt.node.paths.attempt / "logs", attempt.who.hosts)
    if failed:
        attempt.fail("preflight", *failed)


def _never_came(attempt: Attempt, index: int, deadline_s: float) -> Finding:
    if attempt.plan.upstream is not None:
        return upstream_marks.never_came(attempt.node.paths.attempt / "logs", attempt.who.hosts[index])
    refused = f"; {attempt.nodes.refused} connections had no valid token" if attempt.nodes.refused else ""
    return error(
        "node.absent",
        f"node `{attempt.who.hosts[index]}` has not connected within {deadline_s:.0f} s",
        "its container did not start, or it cannot reach the head by "
        f"`{attempt.who.hosts[0]}`{' or ' + attempt.who.launch_ip if attempt.who.launch_ip else ''}{refused}",
        "look for this node in the job's log, and check that the nodes reach each other by name",
        node=attempt.who.hosts[index],
    )


def _not_there(name: str) -> Finding:
    return warning(
        "node.absent",
        f"node `{name}` had not connected when the run was ended",
        "its task may have failed, and ended the others with it",
        "look for this node in the job's log",
        node=name,
    )
