"""The head's part in the nodes' meeting: wait for all agents, and say why one does not come."""

from __future__ import annotations

from jobspec.finding import Finding, error, warning
from jobspec.runtime.base import upstream_marks
from jobspec.runtime.base.channel import candidate_ports
from jobspec.runtime.head.attempt import Attempt
from jobspec.runtime.head.nodes import DeadlineError, RunStoppedError
from jobspec.runtime.node.worker import join_deadline_s


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
    try:
        attempt.nodes.wait_connected(deadline)
    except DeadlineError as missed:
        attempt.fail("preflight", *(_never_came(attempt, index, deadline) for index in missed.indices))
    except RunStoppedError:
        # srun ends all tasks when one fails: the node that is not here may be the reason.
        for index in attempt.nodes.absent():
            attempt.record.find("preflight", _not_there(attempt.who.hosts[index]))
        raise


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
