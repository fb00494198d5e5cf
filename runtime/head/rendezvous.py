"""The head's part in the nodes' meeting: wait for all agents, and say of each that does not come why."""

from __future__ import annotations

from typing import TYPE_CHECKING

from jobspec.finding import Finding, error, warning
from jobspec.runtime import upstream_agents
from jobspec.runtime.base.channel import candidate_ports
from jobspec.runtime.head.nodes import DeadlineError, RunStoppedError
from jobspec.runtime.node.worker import join_deadline_s

if TYPE_CHECKING:
    from jobspec.runtime.head.attempt import Head


def meet(head: Head) -> None:
    """Wait for the agents of the other nodes; without any nothing listens. Raises: RunStoppedError."""
    if len(head.who.hosts) == 1:
        return
    if head.plan.upstream is not None:
        _need_setups(head)
    ports = candidate_ports(head.who.key)
    try:
        head.nodes.listen(ports)
    except OSError as problem:
        head.fail(
            "preflight",
            error(
                "preflight.coordination-ports",
                f"none of the ports {ports[0]}-{ports[-1]} is free on the head node: {problem.strerror}",
                "the nodes meet on one of them",
                "give the job its own nodes (`resources.exclusive: true`)",
                node=head.who.name,
            ),
        )
    deadline = join_deadline_s(head.plan)
    try:
        head.nodes.wait_connected(deadline)
    except DeadlineError as missed:
        head.fail("preflight", *(_never_came(head, index, deadline) for index in missed.indices))
    except RunStoppedError:
        # srun ends all tasks when one fails: the node that is not here may be the reason.
        for index in head.nodes.absent():
            head.record.find("preflight", _not_there(head.who.hosts[index]))
        raise


def _need_setups(head: Head) -> None:
    failed = upstream_agents.failed_setups(head.node.paths.attempt / "logs", head.who.hosts)
    if failed:
        head.fail("preflight", *failed)


def _never_came(head: Head, index: int, deadline_s: float) -> Finding:
    if head.plan.upstream is not None:
        return upstream_agents.never_came(head.node.paths.attempt / "logs", head.who.hosts[index])
    refused = f"; {head.nodes.refused} connections had no valid token" if head.nodes.refused else ""
    return error(
        "node.absent",
        f"node `{head.who.hosts[index]}` has not connected within {deadline_s:.0f} s",
        "its container did not start, or it cannot reach the head by "
        f"`{head.who.hosts[0]}`{' or ' + head.who.launch_ip if head.who.launch_ip else ''}{refused}",
        "look for this node in the job's log; see that the nodes reach each other by name",
        node=head.who.hosts[index],
    )


def _not_there(name: str) -> Finding:
    return warning(
        "node.absent",
        f"node `{name}` had not connected when the run was ended",
        "its task may have failed, and ended the others with it",
        "look for this node in the job's log",
        node=name,
    )
