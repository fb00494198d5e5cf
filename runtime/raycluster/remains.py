"""A child of the head agent: what is left in a Ray that no run uses, asked of its GCS alone.

`python -m jobspec.runtime.raycluster.remains ADDRESS [HOSTS, SESSIONS] WAIT_S` prints one JSON object of what
`fitness.left` judges. It looks again until nothing is left, `WAIT_S` at most: actors of a job end after it.
No driver connects: that would be a job.
"""

from __future__ import annotations

import importlib
import json
import subprocess
import sys
import time
from typing import Any, Dict, List, Mapping, Sequence

from jobspec.runtime.base import procs
from jobspec.runtime.raycluster import fitness

POLL_S = 0.2
ANSWER_S = 45.0  # for Ray's import on a loaded node, and the answers
NO_USE = 1e-6


def ask(
    address: str, hosts: Sequence[str], sessions: Sequence[str], env: Mapping[str, str], wait_s: float
) -> Dict[str, Any]:
    """The facts, or `{"error": why it does not tell}`."""
    known = json.dumps([hosts, sessions])
    argv = [sys.executable, "-m", "jobspec.runtime.raycluster.remains", address, known, str(wait_s)]
    try:
        code, out, err = procs.output(argv, ANSWER_S + wait_s, env)
        found = json.loads(out.decode(errors="replace").strip().splitlines()[-1]) if code == 0 else None
    except subprocess.TimeoutExpired:
        return {"error": f"no answer within {ANSWER_S + wait_s:.0f} s"}
    except (OSError, ValueError, IndexError) as problem:
        return {"error": str(problem)}
    if not isinstance(found, dict):
        last = err.decode(errors="replace").strip().splitlines()[-1:]
        return {"error": last[0] if last else f"it ended with status {code}"}
    return found


class Gcs:
    """The GCS of a Ray. Its names are not documented: whoever asks takes any failure for no answer."""

    def __init__(self, address: str) -> None:
        raylet = importlib.import_module("ray._raylet")
        self._address = address
        self._client = raylet.GcsClient(address=address)
        self._state = importlib.import_module("ray._private.state").state
        made = raylet.GcsClientOptions.create(
            address, None, allow_cluster_id_nil=True, fetch_cluster_id_if_nil=False
        )
        self._state._initialize_global_state(made)
        self._sdk = importlib.import_module("ray.autoscaler.v2.sdk")

    def facts(self) -> Dict[str, Any]:
        client, state = self._client, self._state
        infos = client.get_all_node_info(timeout=5).values()
        jobs = client.get_all_job_info(timeout=5).values()
        session = client.internal_kv_get(b"session_name", b"session", timeout=5)
        actors = [row for row in state.actor_table(None).values() if row["State"] != "DEAD"]
        groups = [row for row in state.placement_group_table().values() if row["state"] != "REMOVED"]
        status = self._sdk.get_cluster_status(self._address)
        return {
            "cluster": client.cluster_id.hex(),
            "session": (session or b"").decode(),
            "nodes": [info.node_name for info in infos if info.state == 0],  # 0 is ALIVE
            "jobs": [f"{job.entrypoint} (pid {job.driver_pid})" for job in jobs if not job.is_dead],
            "actors": [str(row["Name"] or row["ActorClassName"] or row["ActorID"]) for row in actors],
            "groups": [str(row["name"] or row["placement_group_id"]) for row in groups],
            "demands": _demands(status.resource_demands),
            "used": _used([*status.active_nodes, *status.idle_nodes]),
            # The empty namespace and prefix: those of all namespaces.
            "keys": [key.decode(errors="backslashreplace") for key in client.internal_kv_keys(b"", None)],
        }


def _demands(demands: Any) -> List[str]:
    waiting = [*demands.ray_task_actor_demand, *demands.placement_group_demand]
    rows = [row for demand in waiting for row in demand.bundles_by_count]
    return [f"{row.count} x {json.dumps(dict(row.bundle))}" for row in rows]


def _used(nodes: Sequence[Any]) -> List[str]:
    return [
        f"{use.used:g} {use.resource_name}"
        for node in nodes
        for use in node.resource_usage.usage
        if use.used > NO_USE
    ]


def main(address: str, known: str, wait_s: str) -> int:
    hosts, sessions = json.loads(known)
    gcs, end = Gcs(address), time.monotonic() + float(wait_s)
    while True:
        facts = gcs.facts()
        if not fitness.left(facts, hosts, sessions) or time.monotonic() > end:
            break
        time.sleep(POLL_S)
    sys.stdout.write(json.dumps(facts) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
