"""An allocation that is already there: a run's batch script in it, without sbatch.

The shell of `salloc`, or of any batch job, has the allocation in its environment; srun reads it there.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from jobspec.finding import Finding, error, fail

if TYPE_CHECKING:
    from jobspec.plan import Plan

# What srun needs to know of the job. What a step or the shell around asks for (tasks, cores, bindings) would
# become the run's.
_OF_THE_JOB = re.compile(r"SLURM_(JOB_\w+|JOBID|NODELIST|NNODES|CLUSTER_NAME|GPUS(_PER_NODE|_ON_NODE)?)")


@dataclass(frozen=True)
class Allocation:
    """What the allocation has, at least, on each of its nodes; `gpus` is None where Slurm does not say."""

    job_id: str
    nodes: int
    cpus: int
    gpus: int | None
    env: Mapping[str, str] = field(default_factory=dict, repr=False)

    @property
    def variables(self) -> dict[str, str]:
        """What a run in it needs. Its step shares the resources with that of the shell."""
        return {**self.env, "SLURM_OVERLAP": "1", "JOBSPEC_LOCAL": ""}  # its agents are those of a cluster

    def sets(self, data: Mapping[str, Any]) -> list[str]:
        """Overrides by which a spec asks for what is there, where it leaves that open; no run is requeued."""
        resources = data.get("resources") or {}
        has = {"cpus_per_node": self.cpus or None, "gpus_per_node": self.gpus}
        sets = [f"resources.{key}={n}" for key, n in has.items() if n is not None and key not in resources]
        return [*sets, "launch.requeue.max_attempts=1"] if "requeue" in (data.get("launch") or {}) else sets

    def lacks(self, plan: Plan, in_turn: bool = False) -> Iterator[Finding]:
        """What a run asks for beyond it. `in_turn`: its batch script runs the points of a sweep by itself."""
        if plan.scheduler != "slurm":
            fix = "name the cluster's profile by `--cluster`"
            yield error(
                "launch.here", f"the site profile `{plan.cluster}` has no Slurm", "", fix, path="cluster"
            )
            return
        if plan.slurm.requeue_max:
            what, fix = (
                "the run would requeue the allocation",
                "render it with `launch.requeue.max_attempts: 1`",
            )
            yield error("launch.here", what, "", fix, path="launch.requeue.max_attempts")
        if in_turn:
            what = "the points of a sweep run in an allocation like those of an array, one after the other"
            fix = "use `sweep.mode: array`, of levels `coverage.split: jobs`"
            yield error("launch.here", what, "", fix, path="sweep.mode")
        cpus = plan.slurm.cpus_per_task or 0
        rows = (
            ("nodes", plan.nodes, self.nodes),
            ("gpus_per_node", plan.gpus_per_node, plan.gpus_per_node if self.gpus is None else self.gpus),
            ("cpus_per_node", cpus, self.cpus or cpus),
        )
        for key, wanted, has in rows:
            if wanted > has:
                words = key.replace("_", " ")
                what = f"the run asks for {wanted} {words}, the allocation {self.job_id} has {has}"
                fix = f"use {has} or fewer, or a larger allocation"
                yield error("launch.here", what, "", fix, path=f"resources.{key}")


def allocation(env: Mapping[str, str]) -> Allocation:
    """The allocation of this shell. Raises: JobspecError outside of one."""
    job_id, nodes = env.get("SLURM_JOB_ID", ""), env.get("SLURM_JOB_NUM_NODES", env.get("SLURM_NNODES", ""))
    if not job_id.isdecimal() or not nodes.isdecimal():
        why = "`--here` runs in the nodes of a job, and this shell belongs to none: SLURM_JOB_ID is not set"
        raise fail("launch.here", "there is no allocation here", why, "start one: `salloc --nodes=N ...`")
    cpus = [int(count) for count in re.findall(r"(\d+)(?:\(x\d+\))?", env.get("SLURM_JOB_CPUS_PER_NODE", ""))]
    gpus = env.get("SLURM_GPUS_ON_NODE", "")
    own = {name: value for name, value in env.items() if _OF_THE_JOB.fullmatch(name)}
    return Allocation(job_id, int(nodes), min(cpus, default=0), int(gpus) if gpus.isdecimal() else None, own)
