"""Whether a Ray that a held run has kept is fit for another run. Pure: facts in, what is not so out.

What is not known is not so: then the run starts a Ray of its own.
"""

from __future__ import annotations

import dataclasses
import json
import re
from typing import Any, Dict, List, Mapping, Sequence, Tuple

from jobspec.plan import Plan
from jobspec.runtime.base.identity import Identity

Row = Mapping[str, Any]
SHOWN = 3
MOST = 80  # letters of a value in a sentence
# Of one Ray: the guest is given them. RAY_ADDRESS is not there when Ray starts.
OF_RAY = ("RAY_AUTH_TOKEN", "RAY_TMPDIR", "RAY_ADDRESS")
OF_RUN = "JOBSPEC_"
OF_CONTAINER = (
    "runtime", "image", "digest", "python", "mounts", "env", "workdir", "mount_home", "remap_root"
)  # fmt: skip
# Keys of Ray's own; what a job exports has the job's number, and packages the digest of their content.
# Any other was written by a program. Seen with ray 2.60; source: src/ray/gcs and python/ray/_private.
OWN_KEY = re.compile(
    r"(?:extra_usage_tag_|library_usage_|hardware_usage_|DASHBOARD_|__autoscal|RemoteFunction:|ActorClass:"
    r"|FunctionsToRun:|IsolatedExports:|gcs://).*"
    r"|AutoscalerMetricsAddress|CLUSTER_METADATA|DashboardMetricsAddress|dashboard|gcs_pid|ray_client_server"
    r"|ray_cluster_id|session_name|webui:url",
    re.DOTALL,
)


def terms(plan: Plan, who: Identity, of_process: Row) -> Dict[str, Any]:
    """What the Ray of `plan` is started with on this node; `of_process` says what the plan does not."""
    ray = dataclasses.asdict(plan.ray) if plan.ray is not None else {}
    ray.pop("join_timeout_s", None)
    part, container = plan.part_of(who.index), dataclasses.asdict(plan.container)
    found = {
        "allocation": who.job_id,
        "nodes": list(who.hosts),
        **{f"container {key}": container[key] for key in OF_CONTAINER},
        **{f"Ray's {key}": value for key, value in ray.items()},
        "GPUs of Ray": plan.ray_gpus_of(who.index),
        "CPUs of Ray": part.cpus_per_node,
        "group": part.name,
        **of_process,
    }
    travelled: Dict[str, Any] = json.loads(json.dumps(found))  # as the other side gets it
    return travelled


def differences(kept: Row, own: Row) -> List[str]:
    """A sentence for each of the terms that is another now."""
    return [
        f"{key}: `{_short(kept.get(key))}` of its Ray, `{_short(own.get(key))}` of this run"
        for key in dict.fromkeys((*kept, *own))
        if kept.get(key) != own.get(key)
    ]


def environment(
    kept: Mapping[str, str], own: Mapping[str, str], of_kept: Sequence[str], of_own: Sequence[str]
) -> Tuple[List[str], Dict[str, str]]:
    """What the variables that jobspec sets have of another environment, and what the guest's jobs are given.

    `of_kept` and `of_own` are the run's own folders, which name the same thing under another path: such
    values and those of JOBSPEC_ are no difference, and travel with each job. No value is told: it may be a
    secret.
    """
    reasons: List[str] = []
    handed: Dict[str, str] = {}
    for name in sorted({*kept, *own} - {*OF_RAY}):
        before, now = kept.get(name), own.get(name)
        if before == now:
            continue
        if name.startswith(OF_RUN):
            handed[name] = now or ""
        elif before is None or now is None:
            reasons.append(
                f"variable `{name}` is set for {'this run' if before is None else 'its Ray'} alone"
            )
        elif _neutral(before, of_kept) != _neutral(now, of_own):
            reasons.append(f"variable `{name}` has another value")
        else:
            handed[name] = now
    return reasons, handed


def left(cluster: Row, hosts: Sequence[str], sessions: Sequence[str]) -> List[str]:
    """What the GCS knows of that is not as at the start. `sessions`: the session of each node's folder."""
    told = str(cluster.get("session", ""))
    reasons = [f"its GCS is of session `{told}`, node {host} has `{session}`"
               for host, session in zip(hosts, sessions) if not told or session != told]  # fmt: skip  # noqa: B905
    alive = cluster["nodes"]
    if sorted(alive) != sorted(hosts):
        reasons.append(f"its nodes that are alive are {', '.join(sorted(alive)) or 'none'}")
    reasons += _some("driver", "is alive", cluster["jobs"])
    reasons += _some("actor", "is alive", cluster["actors"])
    reasons += _some("placement group", "is not removed", cluster["groups"])
    reasons += _some("demand", "waits for resources", cluster["demands"])
    reasons += _some("amount", "is in use", cluster["used"])
    reasons += _some(
        "key", "was written to its store", [key for key in cluster["keys"] if not OWN_KEY.fullmatch(key)]
    )
    return reasons


def node_left(node: str, processes: Sequence[str], on_gpus: Sequence[str]) -> List[str]:
    """What an earlier run has left on a node: processes below the keeper's agent, and any on the GPUs."""
    return [
        *_some("process", f"is left on {node}", processes),
        *_some("process", f"is on the GPUs of {node}", on_gpus),
    ]


def _some(what: str, how: str, names: Sequence[str]) -> List[str]:
    if not names:
        return []
    more = f" and {len(names) - SHOWN} more" if len(names) > SHOWN else ""
    return [f"{what} {', '.join(f'`{_short(name)}`' for name in names[:SHOWN])}{more} {how}"]


def _short(value: Any) -> str:
    text = value if isinstance(value, str) else json.dumps(value)
    return text if len(text) <= MOST else text[: MOST - 3] + "..."


def _neutral(value: str, folders: Sequence[str]) -> str:
    for at, folder in enumerate(folders):
        value = value.replace(folder, f"\0{at}")
    return value
