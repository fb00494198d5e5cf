"""The agent of a node that is not the head: connects, runs what the head asks for, leaves at its goodbye."""

from __future__ import annotations

import sys
import threading
import time
from typing import Any, Mapping

from jobspec.finding import error
from jobspec.plan import Plan
from jobspec.runtime.base import procs, signals
from jobspec.runtime.base.channel import ChannelError, Hello, Link, candidate_ports, find_head, keep_alive
from jobspec.runtime.base.identity import Identity
from jobspec.runtime.base.signals import Received
from jobspec.runtime.base.upstream_marks import MEET_S
from jobspec.runtime.node.agent import Node
from jobspec.runtime.node.salvage import keep

DEFAULT_JOIN_S = 300.0


def join_deadline_s(plan: Plan) -> float:
    """How long the nodes of a run may take to find each other: images are unpacked in this time."""
    if plan.upstream is not None:
        return MEET_S
    return plan.ray.join_timeout_s if plan.ray is not None else DEFAULT_JOIN_S


def run_worker(plan: Plan, who: Identity, env: Mapping[str, str]) -> int:
    """Serve the head until it says goodbye: 0; 1 when it cannot be found or is lost."""
    received = signals.receive()
    hosts = [host for host in (who.hosts[0], who.launch_ip) if host]
    try:
        link = find_head(
            hosts,
            candidate_ports(who.key),
            who.token,
            Hello(who.index, who.name),
            join_deadline_s(plan),
            hurry=lambda: not received.empty(),
        )
    except ChannelError as failed:
        sys.stderr.write(f"jobspec: {who.name}: the head node `{who.hosts[0]}` was not found: {failed}\n")
        return 1
    # Signals tell the head: it decides for all nodes, and collects before they leave.
    threading.Thread(target=_pass_on, args=(received, link), daemon=True, name="pass-on").start()
    threading.Thread(target=keep_alive, args=(link, threading.Event()), daemon=True, name="heartbeat").start()
    node = Node(plan, who, env, lambda message: _tell(link, message))
    try:
        code = _serve(link, node)
        if code:
            keep(node)
        return code
    finally:
        node.close()


def _serve(link: Link, node: Node) -> int:
    while True:
        try:
            message = link.receive()
        except ChannelError as lost:
            sys.stderr.write(f"jobspec: {node.who.name}: the head is gone: {lost}\n")
            return 1
        if "bye" in message:
            return 0
        if "operation" in message:
            message["arguments"]["arrived"] = time.time()  # its thread may have to wait
            threading.Thread(target=_work, args=(link, node, message), daemon=True, name="operation").start()


def _work(link: Link, node: Node, message: Mapping[str, Any]) -> None:
    reply = node.handle(str(message["operation"]), message["arguments"])
    try:
        _tell(link, {"id": message["id"], "reply": reply})
    except (TypeError, ValueError) as bug:  # not JSON: without an answer the head would wait for ever
        what = f"the reply to `{message['operation']}` cannot be sent: {bug}"
        finding = error("runtime.bug", what, "this is a bug in jobspec", "see agent.log of this node")
        _tell(link, {"id": message["id"], "reply": {"findings": [finding.to_json()]}})


def _tell(link: Link, message: Mapping[str, Any]) -> None:
    try:
        link.send(message)
    except ChannelError:
        return  # the receiving thread sees the same end, and leaves


def _pass_on(received: Received, link: Link) -> None:
    while True:
        number = received.get()
        if procs.guard_is_gone():  # nothing would end what this node leaves behind: it is lost
            link.close()
        _tell(link, {"signal": number})
