"""A child of the head agent during a dump: what Ray waits for, asked of its GCS alone.

`python -m jobspec.runtime.raycluster.state ADDRESS` prints one JSON object. No worker is asked: it may hang.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import re
import sys
from typing import Any, Dict, List, Mapping, Optional, Sequence, Tuple

WAITING = ("PENDING", "RESCHEDULING")  # states of a placement group without its resources
# Ends that somebody wanted. Source: ray 2.60, src/ray/gcs/gcs_actor_manager.cc and actor.proto.
WANTED = (
    "ray.kill",
    "out of scope",
    "all references to the actor were removed",
    "owner has died",
    "INTENDED",
)
NO_NODE_YET, FINISHED = 2, 11  # PENDING_NODE_ASSIGNMENT and FINISHED of src/ray/protobuf/common.proto
SHOWN = 4
# `CPU_group_0_<id>` is of that bundle, `CPU_group_<id>` of any of the group; `bundle_group_` marks the place.
_RESERVED = re.compile(r"^(.+)_group_(?:(\d+)_)?[0-9a-f]{24,}$")
_LACKS = {True: "has so much of it", False: "can hold it"}  # of a placement group, and of all
Amounts = Mapping[str, float]
Demand = Tuple[Amounts, int]
Named = Tuple[str, Amounts]


def told(
    actors: Mapping[str, Mapping[str, Any]],
    groups: Mapping[str, Mapping[str, Any]],
    resources: Mapping[str, Mapping[str, float]],
    tasks: Sequence[Demand] = (),
    free: Sequence[Amounts] = (),
    names: Sequence[Named] = (),
    held: Sequence[Named] = (),
    totals: Sequence[Amounts] = (),
    tries: Mapping[str, int] = {},
) -> Dict[str, Any]:
    """What waits and what is dead, as sentences; and the most that a node has.

    `tasks` are amounts that tasks ask for, and how many do. What a node could hold is queued where none has
    that `free` now; it only waits for its turn, unless those who have it `held` do nothing. `names` are those
    of tasks that wait, with what each asks for. `totals` are the nodes' with what placement groups have
    reserved there, under other names; `tries` those of tasks that have failed.
    """
    nodes, whole = list(resources.values()), totals or list(resources.values())
    queued = [
        f"{_task(bundle, count, names)}{_holders(bundle, held)}"
        for bundle, count in tasks
        if free and _fits(bundle, whole) and not _fits(bundle, free)
    ]
    most = {name: max(row.get(name, 0.0) for row in nodes) for row in nodes for name in row}
    pending, full = _groups(list(groups.values()), nodes, free, held)
    # One of DEPENDENCIES_UNREADY waits for its arguments, and one for which nothing is asked lacks nothing.
    # Actors of a group that is not there wait for the group. An older Ray does not tell what is asked for.
    waiting = [actor for actor in actors.values() if actor["State"] == "PENDING_CREATION"]
    if tasks or pending or full or not free:
        pending += [f"an actor `{_name(actor)}` ({actor['State']})" for actor in waiting]
    pending += _too_large(tasks, names, nodes, totals)
    restarting = [
        f"an actor `{_name(actor)}` was restarted{_times(actor.get('NumRestarts'))} and is not ready"
        for actor in actors.values()
        if actor["State"] == "RESTARTING"
    ]
    have = ", ".join(f"{most[name]:g} {name}" for name in ("CPU", "GPU") if name in most)
    return {
        "pending": pending[:20],
        "full": full[:20],
        "queued": queued[:20],
        "dead": _dead(actors)[:20],
        "restarting": restarting[:20],
        "retried": _retried(tries)[:20],
        "have": f"a node has at most {have}; {len(resources)} node(s)" if have else "",
    }


def _retried(tries: Mapping[str, int]) -> List[str]:
    return [f"a task `{name}` was tried again{_times(count)}" for name, count in tries.items()]


def _too_large(
    tasks: Sequence[Demand], names: Sequence[Named], nodes: Sequence[Amounts], totals: Sequence[Amounts]
) -> List[str]:
    """The tasks that ask for more than any node has. Without `totals` nothing is known of groups."""
    return [
        f"{_task(bundle, count, names)} (no node {_LACKS[_of_group(bundle)]})"
        for bundle, count in tasks
        if not _fits(bundle, totals or nodes) and (totals or not _of_group(bundle))
    ]


def _dead(actors: Mapping[str, Mapping[str, Any]]) -> List[str]:
    """The actors that have ended though nobody wanted that."""
    return [
        f"`{_name(actor)}` (pid {actor.get('Pid')}): {_cause(str(actor.get('DeathCause')))}"
        for actor in actors.values()
        if actor["State"] == "DEAD" and not any(word in str(actor.get("DeathCause")) for word in WANTED)
    ]


def _of_group(bundle: Amounts) -> bool:
    return any(_RESERVED.match(name) for name in bundle)


def _times(number: Any) -> str:
    count = int(number or 0)
    return f" {count} time{'s' if count > 1 else ''}" if count else ""


def _fits(bundle: Amounts, rows: Sequence[Amounts]) -> bool:
    return any(all(row.get(name, 0.0) >= amount for name, amount in bundle.items()) for row in rows)


def _task(bundle: Amounts, count: int, names: Sequence[Named]) -> str:
    """`2 tasks `score` of {CPU: 1}`; with the names that are known."""
    known = sorted({name for name, asked in names if dict(asked) == dict(bundle)})[:SHOWN]
    called = f" {', '.join(f'`{name}`' for name in known)}" if known else ""
    return f"{count} task{'s' if count > 1 else ''}{called} of {_amounts(bundle)}"


def _groups(
    groups: Sequence[Mapping[str, Any]],
    nodes: Sequence[Amounts],
    free: Sequence[Amounts],
    held: Sequence[Named],
) -> Tuple[List[str], List[str]]:
    """The placement groups that wait: those that no node can hold, or of which no more is known, and those
    for which no node has room now, with who holds it."""
    pending: List[str] = []
    full: List[str] = []
    reserved = [row for group in groups for row in _reserved(group)]
    for group in groups:
        if group["state"] in WAITING:
            text, lacks = _group(group, nodes, free), _not_free(group, nodes, free)
            if lacks is None:
                pending.append(text)
            else:
                text += f": no node has {_amounts(lacks)} free{_holders(lacks, reserved, 'placement groups')}"
                full.append(f"{text}{_holders(lacks, held)}")
    return pending, full


def _group(group: Mapping[str, Any], nodes: Sequence[Amounts], free: Sequence[Amounts]) -> str:
    """A placement group that waits, in words."""
    bundles = list(group["bundles"].values())
    why = str(group.get("stats", {}).get("scheduling_state", ""))
    if group["strategy"] == "STRICT_SPREAD" and len(bundles) > len(nodes):
        why = f"it needs {len(bundles)} nodes, and there are {len(nodes)}"
    elif why == "INFEASIBLE":
        why = "INFEASIBLE: no node can hold it"
    elif _not_free(group, nodes, free) is not None:
        why = ""  # said by who holds it
    said = ", ".join(_amounts(bundle) for bundle in bundles)
    return f"a placement group ({group['strategy']}) of {said}" + (f" ({why})" if why else "")


def _not_free(
    group: Mapping[str, Any], nodes: Sequence[Amounts], free: Sequence[Amounts]
) -> Optional[Amounts]:
    """The first of its bundles that each would fit on a node, and that none has free."""
    bundles = list(group["bundles"].values())
    if not free or not all(_fits(bundle, nodes) for bundle in bundles):
        return None
    return next((bundle for bundle in bundles if not _fits(bundle, free)), None)


def _reserved(group: Mapping[str, Any]) -> List[Named]:
    """What a placement group that stands has reserved, all its bundles together."""
    if group["state"] != "CREATED":
        return []
    amounts: Dict[str, float] = {}
    for bundle in group["bundles"].values():
        for key, value in bundle.items():
            amounts[key] = amounts.get(key, 0.0) + value
    name = str(group.get("name") or group.get("placement_group_id", ""))
    return [(name, amounts)]


def _holders(bundle: Amounts, held: Sequence[Named], whose: str = "actors") -> str:
    """The actors, or groups, that hold something of what is asked for, those with the most first."""
    keys = _narrow(bundle)
    found = [
        (name, {key: have[key] for key in keys if have.get(key)})
        for name, have in held
        if any(have.get(key) for key in keys)
    ]
    found.sort(key=lambda row: -max(row[1].values()))
    said = ", ".join(f"`{name}` {_amounts(have)}" for name, have in found[:SHOWN])
    return f" ({whose} hold: {said})" if said else ""


def _cause(text: str) -> str:
    """The message of a death cause, which Ray prints as a protocol buffer."""
    found = re.search(r'error_message: "([^"]{1,200})', text)
    return " ".join((found[1] if found else text[:200]).split())


def _narrow(bundle: Amounts) -> Amounts:
    """The amounts of one bundle of a placement group without those of the whole group, which Ray asks for
    beside them, and without the marks of its place; any other as it is."""
    rows = [(name, amount, _RESERVED.match(name)) for name, amount in bundle.items()]
    indexed = any(found and found[2] for _, _, found in rows)
    kept = [(name, amount) for name, amount, found in rows if not found or found[2] or not indexed]
    plain = {name: amount for name, amount in kept if not name.startswith("bundle_group_")}
    return plain or dict(kept)


def _amounts(bundle: Amounts) -> str:
    rows = [(_RESERVED.match(name), name, amount) for name, amount in _narrow(bundle).items()]
    said = ", ".join(f"{found[1] if found else name}: {amount:g}" for found, name, amount in rows)
    bundles = sorted({f" in bundle {found[2]}" for found, _, _ in rows if found and found[2]})
    of = f"{' and'.join(bundles)} of a placement group" if any(found for found, _, _ in rows) else ""
    return f"{{{said}}}{of}"


def _name(actor: Mapping[str, Any]) -> str:
    return str(actor.get("ActorClassName") or actor.get("Name") or actor.get("ActorID"))


def _tasks(address: str) -> Tuple[List[Demand], List[Amounts], List[Amounts]]:
    """What the tasks and actors that wait ask for, what each node has free, and what it has; the autoscaler's
    view, which Ray 2.9 and later have."""
    try:
        sdk = importlib.import_module("ray.autoscaler.v2.sdk")
        status = sdk.get_cluster_status(address)
        demands = status.resource_demands.ray_task_actor_demand
        tasks: List[Demand] = [
            (row.bundle, row.count) for demand in demands for row in demand.bundles_by_count
        ]
        nodes = [*status.active_nodes, *status.idle_nodes]
        free: List[Amounts] = [
            {use.resource_name: use.total - use.used for use in node.resource_usage.usage} for node in nodes
        ]
        totals: List[Amounts] = [
            {use.resource_name: use.total for use in node.resource_usage.usage} for node in nodes
        ]
        return tasks, free, totals
    except Exception:  # noqa: BLE001 - an older Ray: the rest is told all the same
        return [], [], []


def _events(accessor: Any) -> List[Any]:
    """What the GCS keeps of tasks."""
    tables = importlib.import_module("ray.core.generated.gcs_pb2")
    return [tables.TaskEvents.FromString(row) for row in accessor.get_task_events()]


def _named(accessor: Any, tasks: Sequence[Any]) -> Tuple[List[Named], List[Named]]:
    """Tasks that no node has yet, with what they ask for, and actors that live, with what they hold."""
    tables = importlib.import_module("ray.core.generated.gcs_pb2")
    actors = [tables.ActorTableData.FromString(row) for row in accessor.get_actor_table(None, "ALIVE")]
    return (
        [
            (task.task_info.name, dict(task.task_info.required_resources))
            for task in tasks
            if max(task.state_updates.state_ts_ns, default=0) == NO_NODE_YET
        ],
        [(actor.class_name, dict(actor.required_resources)) for actor in actors],
    )


def _tries(events: Sequence[Any]) -> Dict[str, int]:
    """How often tasks that have not succeeded were tried again; of several of one name the most."""
    again = [event for event in events if event.attempt_number]
    done = {event.task_id for event in again if FINISHED in event.state_updates.state_ts_ns}
    found: Dict[str, int] = {}
    for event in again:
        name = event.task_info.name
        if event.task_id not in done and name:
            found[name] = max(found.get(name, 0), event.attempt_number)
    return found


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
    tasks, free, totals = _tasks(address)
    names: List[Named] = []
    held: List[Named] = []
    tries: Dict[str, int] = {}
    with contextlib.suppress(Exception):  # not documented: without it names and tries are missing
        accessor = state.state._connect_and_get_accessor()
        events = _events(accessor)
        tries = _tries(events)
        if tasks or any(group["state"] in WAITING for group in groups.values()):
            names, held = _named(accessor, events)
    found = told(actors, groups, nodes, tasks, free, names, held, totals, tries)
    sys.stdout.write(json.dumps(found, default=str) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
