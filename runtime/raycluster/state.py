"""A child of the head agent during a dump: what Ray waits for, asked of its GCS alone.

`python -m jobspec.runtime.raycluster.state ADDRESS` prints one JSON object. No worker is asked: it may hang.
"""

from __future__ import annotations

import importlib
import json
import re
import sys
from typing import Any, Dict, List, Mapping, Sequence, Tuple

# Ends that somebody wanted. Source: ray 2.60, src/ray/gcs/gcs_actor_manager.cc and actor.proto.
WANTED = (
    "ray.kill",
    "out of scope",
    "all references to the actor were removed",
    "owner has died",
    "INTENDED",
)
WAITING_ACTOR = ("PENDING_CREATION", "DEPENDENCIES_UNREADY", "RESTARTING")


def told(
    actors: Mapping[str, Mapping[str, Any]],
    groups: Mapping[str, Mapping[str, Any]],
    resources: Mapping[str, Mapping[str, float]],
    tasks: Sequence[Tuple[Mapping[str, float], int]] = (),
) -> Dict[str, Any]:
    """What waits and what is dead, as sentences; and the most that a node has.

    `tasks` are amounts that tasks ask for, and how many do. What a node could hold only waits for its turn.
    """
    most = {
        name: max(row.get(name, 0.0) for row in resources.values())
        for row in resources.values()
        for name in row
    }
    pending: List[str] = []
    for group in groups.values():
        if group["state"] in ("PENDING", "RESCHEDULING"):
            bundles = ", ".join(_amounts(bundle) for bundle in group["bundles"].values())
            why = str(group.get("stats", {}).get("scheduling_state", ""))
            never = (
                " (INFEASIBLE: no node can hold it)" if why == "INFEASIBLE" else f" ({why})" if why else ""
            )
            pending.append(f"a placement group ({group['strategy']}) of {bundles}{never}")
    waiting = [actor for actor in actors.values() if actor["State"] in WAITING_ACTOR]
    # Actors of a group that is not there wait for the group.
    pending += [f"an actor `{_name(actor)}` ({actor['State']})" for actor in waiting]
    pending += [
        f"{count} task{'s' if count > 1 else ''} of {_amounts(bundle)} (no node can hold it)"
        for bundle, count in tasks
        if not any(
            all(row.get(name, 0.0) >= amount for name, amount in bundle.items()) for row in resources.values()
        )
    ]
    dead = [
        f"`{_name(actor)}` (pid {actor.get('Pid')}): {_cause(str(actor.get('DeathCause')))}"
        for actor in actors.values()
        if actor["State"] == "DEAD" and not any(word in str(actor.get("DeathCause")) for word in WANTED)
    ]
    have = ", ".join(f"{most[name]:g} {name}" for name in ("CPU", "GPU") if name in most)
    return {
        "pending": pending[:20],
        "dead": dead[:20],
        "have": f"a node has at most {have}; {len(resources)} node(s)" if have else "",
    }


def _cause(text: str) -> str:
    """The message of a death cause, which Ray prints as a protocol buffer."""
    found = re.search(r'error_message: "([^"]{1,200})', text)
    return " ".join((found[1] if found else text[:200]).split())


def _amounts(bundle: Mapping[str, float]) -> str:
    return "{" + ", ".join(f"{name}: {amount:g}" for name, amount in bundle.items()) + "}"


def _name(actor: Mapping[str, Any]) -> str:
    return str(actor.get("ActorClassName") or actor.get("Name") or actor.get("ActorID"))


def _tasks(address: str) -> List[Tuple[Mapping[str, float], int]]:
    """What the tasks and actors that wait ask for; the autoscaler's view, which Ray 2.9 and later have."""
    try:
        sdk = importlib.import_module("ray.autoscaler.v2.sdk")
        demands = sdk.get_cluster_status(address).resource_demands.ray_task_actor_demand
        return [(row.bundle, row.count) for demand in demands for row in demand.bundles_by_count]
    except Exception:  # noqa: BLE001 - an older Ray: the rest is told all the same
        return []


def main(address: str) -> int:
    ray = importlib.import_module("ray")
    state = importlib.import_module("ray._private.state")
    try:
        options = importlib.import_module("ray._raylet").GcsClientOptions
        made = options.create(address, None, allow_cluster_id_nil=True, fetch_cluster_id_if_nil=False)
        state.state._initialize_global_state(made)
    except Exception:  # noqa: BLE001 - not documented: any failure means the other way
        ray.init(address=address, log_to_driver=False, logging_level="ERROR")
    nodes = {row["NodeID"]: row["Resources"] for row in state.nodes() if row["Alive"]}
    actors = state.actors()
    groups = state.state.placement_group_table()
    sys.stdout.write(json.dumps(told(actors, groups, nodes, _tasks(address)), default=str) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
