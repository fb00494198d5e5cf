"""An allocation that is already there: a run's batch script in it, without sbatch.

The shell of `salloc`, or of any batch job, has the allocation in its environment; srun reads it there.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from jobspec.finding import fail

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
