"""This node's part of the run's own Ray: started, watched, ended; and offered to guests by a held run."""

from __future__ import annotations

import os
import threading
from pathlib import Path
from typing import Any, Callable, Dict, List, Mapping, Optional

from jobspec.finding import Finding, error
from jobspec.plan import Plan
from jobspec.runtime.base import procs
from jobspec.runtime.base.identity import Identity, NodePaths
from jobspec.runtime.base.log_tail import tail
from jobspec.runtime.base.redact import Redactor
from jobspec.runtime.node.borrowed_ray import of_process, own_folders, own_variables
from jobspec.runtime.node.kept_ray import Keeper
from jobspec.runtime.raycluster import fitness, process

Emit = Callable[[Mapping[str, Any]], None]


class OwnRay:
    """One `ray start` below this agent."""

    def __init__(self, plan: Plan, who: Identity, paths: NodePaths, redactor: Redactor, emit: Emit) -> None:
        self._plan, self._who, self._paths, self._redactor, self._emit = plan, who, paths, redactor, emit
        self._ray: Optional[process.RayNode] = None
        self._address = ""
        self._env: Mapping[str, str] = {}
        self._base: Mapping[str, str] = {}
        self._stopping = threading.Event()
        run = f"{who.run_dir.parent.name}/{who.run_dir.name}"
        whose = {"run": run, "job": who.job_id, "node": who.name}
        self._keeper = Keeper(paths.scratch, whose, self._offer, self._end)

    @property
    def there(self) -> bool:
        return self._ray is not None

    def start(self, arguments: Mapping[str, Any], env: Mapping[str, str]) -> List[Finding]:
        """Start Ray and return; readiness is the head's to see. Its unexpected end is emitted."""
        start = process.RayStart.from_json(arguments["start"])
        argv = process.start_command(self._plan, start, process.has_client(env))
        started_with = process.start_environment(self._plan, start, env)
        ray = process.RayNode(argv, started_with, Path(start.temp_dir), self._paths.logs / "ray.log")
        self._ray, self._address, self._env = ray, start.address, env
        if self._stopping.is_set():  # `stop` may have looked before there was one
            ray.stop()
            return []
        ready = start.is_head or process.wait_for_port(
            start.address, float(arguments["deadline_s"]), lambda: not self._stopping.is_set()
        )
        if not ready:
            if self._stopping.is_set():
                return []
            ray.stop()
            return [_unreachable(start.address)]
        threading.Thread(target=self._watch, args=(ray,), daemon=True, name="ray-watch").start()
        return []

    def _watch(self, ray: process.RayNode) -> None:
        ended = ""
        while not ended:
            ended = ray.wait(0.5)
            if self._stopping.is_set():
                return
        if not self._stopping.is_set():
            last = self._redactor.text(tail(ray.log))
            finding = error("ray.ended", ended, last, "see ray.log of this node")
            self._emit({"phase": "ray", "finding": finding.to_json()})

    def leave(self) -> None:
        """None may start any more; the end of this one is meant."""
        self._stopping.set()

    def stop(self) -> None:
        self.leave()
        self._keeper.close()
        ray = self._ray
        if ray is not None:
            ray.stop()

    def keep(self, offered: bool, base: Mapping[str, str]) -> None:
        """Ray is up; then, `offered`, the held run's commands have ended. `base`: the agent's environment.

        Raises: OSError.
        """
        if not offered:
            self._keeper.note_own()
        elif self._who.job_id and self._ray is not None:
            self._base = base
            self._keeper.open()

    def _offer(self) -> Dict[str, Any]:
        """All that a guest on this node compares, and the way into Ray."""
        services = {"services beside Ray": [service.name for service in self._plan.services]}
        return {
            "pid": os.getpid(),
            "address": self._address,
            "temp_dir": str(self._paths.ray),
            "token": self._env.get("RAY_AUTH_TOKEN", ""),
            "terms": {**fitness.terms(self._plan, self._who, of_process(self._env)), **services},
            "env": own_variables(self._plan, self._env, self._base),
            "folders": own_folders(self._who, self._paths),
        }

    def _end(self) -> None:
        """End Ray, and what its programs have left below this agent: a held run has nothing else there."""
        self.leave()
        ray, self._ray = self._ray, None
        if ray is not None:
            ray.stop()
            procs.end_all(procs.leftovers(), 0.5)


def _unreachable(address: str) -> Finding:
    return error(
        "ray.unreachable",
        f"Ray's head at {address} does not accept connections from this node",
        "a firewall, another network, or a head that did not start",
        "choose the network by `network.interface` or `network.subnet` in the site profile",
    )
