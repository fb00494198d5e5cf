"""What an attempt has left on its nodes when its head's agent was killed, and nobody asks for it any more.

A worker that has lost the head copies its own files before it leaves. Slurm may kill it meanwhile; so the
batch script starts a step of its own, in the same container, that copies what is left. No channel joins the
nodes then: each leaves its rows in a file of the attempt, and the first node writes the manifest of all.

An agent that still lives on a node holds the lock of its folder: it may be copying right now. The step waits
for it. Of one that stands still it copies the files, and removes nothing: they are still the agent's.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import sys
import time
from pathlib import Path
from typing import Any, Dict, List, Mapping

from jobspec.plan import Plan
from jobspec.runtime.base.events import write_json
from jobspec.runtime.base.identity import Identity
from jobspec.runtime.node import collect
from jobspec.runtime.node.agent import Node
from jobspec.runtime.node.sweep import claim, sweep

COLLECT_S = 20.0  # the batch script gives the step a minute
HOLDER_S = 15.0  # for an agent that still lives on this node
OTHERS_S = 10.0  # for nodes that are slower than the first, or gone
STOP_S = 1.0


def keep(node: Node) -> None:
    """Copy this node's files, unless that is done, and leave their list in the attempt."""
    place = _list_of(node, node.who.index)
    if not place.exists():
        node.handle("stop_command", {"grace_s": STOP_S})
        reply = node.handle("collect", {"deadline_s": min(COLLECT_S, node.plan.collect.timeout_s)})
        with contextlib.suppress(OSError):
            write_json(place, reply)


def salvage(plan: Plan, who: Identity, env: Mapping[str, str]) -> int:
    """The batch script's step: keep this node's files, then remove what the attempt has left here."""
    node = Node(plan, who, env, lambda _: None)
    held = claim(node.paths.agents, node.paths.scratch)
    alone = _is_alone(held, time.monotonic() + HOLDER_S)
    try:
        keep(node)
        if who.is_head:
            end = time.monotonic() + OTHERS_S
            rows = [row for index in range(len(who.hosts)) for row in _rows(_list_of(node, index), end)]
            collect.write_manifest(node.paths.artifacts, rows, who.name, node.redactor)
            sys.stderr.write(f"jobspec: {len(rows)} files were saved after the head's agent was killed\n")
    finally:
        if alone:
            node.close()
        os.close(held)
    if not alone:
        sys.stderr.write(f"jobspec: {who.name}: an agent of this run still lives here, and keeps its files\n")
    sweep(Path(plan.node_local))
    return 0


def _is_alone(folder: int, end: float) -> bool:
    """Whether no live agent holds the folder, at once or before `end`."""
    while True:
        try:
            fcntl.flock(folder, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return True
        except BlockingIOError:
            if time.monotonic() > end:
                return False
            time.sleep(0.1)
        except OSError:
            return True  # no locks on this file system


def _list_of(node: Node, index: int) -> Path:
    return node.paths.attempt / f"salvaged-{index}.json"


def _rows(place: Path, end: float) -> List[Dict[str, Any]]:
    """What a node has copied; nothing when it does not say so in time."""
    while True:
        with contextlib.suppress(OSError, ValueError):
            reply = json.loads(place.read_text(encoding="utf-8"))
            rows: List[Dict[str, Any]] = reply.get("files", [])
            return rows
        if time.monotonic() > end:
            return []
        time.sleep(0.1)
