"""Staging as one operation of a node: with the other nodes, and with the hub where the plan asks for it."""

from __future__ import annotations

from typing import Any, Callable, Dict, Mapping, Optional, Sequence

from jobspec.plan import Plan
from jobspec.runtime.staging import items
from jobspec.runtime.staging.disk_space import cap_bytes
from jobspec.runtime.staging.hub_client import HubClient, Settings
from jobspec.runtime.staging.hub_files import HubFiles, hub_lanes
from jobspec.runtime.staging.swarm import Peer, Swarm

DEADLINE_S = 24 * 3600.0  # staging watches its own progress; this only bounds a wrong estimate
Report = Callable[[str, Mapping[str, Any]], None]


def stage(
    plan: Plan,
    env: Mapping[str, str],
    base: Mapping[str, str],
    swarm: Optional[Swarm],
    peers: Sequence[Peer],
    report: Report,
) -> items.StageResult:
    """Make every item of the plan readable on this node.

    `env` is the commands' environment; the hub's token, which they do not get, is in `base`, the agent's own.
    """
    files: Optional[HubFiles] = None
    if any(item.from_hub for item in plan.stage):
        asking: Dict[str, str] = {**env, **{name: base[name] for name in plan.stage_secrets if name in base}}
        files = HubFiles(HubClient(Settings.of(asking), report), sharing=swarm is not None)
    if swarm is not None and files is not None:
        swarm.meet(peers, files.open, hub_lanes(len(peers)), files.client.alive)
    elif swarm is not None:
        swarm.meet(peers)
    return items.run(
        plan.stage,
        plan.node_local,
        report,
        float(plan.time_limit_s or DEADLINE_S),
        swarm=swarm,
        cap_bytes=cap_bytes(plan.env.get("JOBSPEC_STAGE_MAX_GIB", "")),
        files=files,
    )
