"""Rules over groups of unequal nodes: the modes and the jobs that can have them."""

from __future__ import annotations

from collections.abc import Iterator

from jobspec.finding import Finding, error
from jobspec.plan import Plan
from jobspec.spec.job import JobSpec
from jobspec.spec.site import ClusterProfile


def mode_has_groups(plan: Plan, spec: JobSpec, profile: ClusterProfile) -> Iterator[Finding]:
    if plan.groups and plan.mode == "upstream":
        yield error(
            "group.upstream",
            "mode `upstream` has no groups",
            "the framework's own script starts Ray on equal nodes, without their resources",
            "use `launch: {mode: ray}`",
            path="groups",
        )


def array_of_components(plan: Plan, spec: JobSpec, profile: ClusterProfile) -> Iterator[Finding]:
    """Slurm takes no array of heterogeneous jobs. Source: sbatch(1), `--array`."""
    if len(plan.components) == 1:
        return
    what = "groups that ask for different nodes make a heterogeneous job"
    why = "Slurm takes no array of those"
    if spec.sweep is not None and spec.sweep.mode == "array":
        fix = "set `sweep.mode: one_allocation`, which runs the points in turn"
        yield error("group.array", what, why, fix, path="sweep.mode")
    if spec.coverage.levels and spec.coverage.split == "jobs":
        fix = "set `coverage.split: allocation`, which trains the levels in turn"
        yield error("group.array", what, why, fix, path="coverage.split")


def nodelist_of_components(plan: Plan, spec: JobSpec, profile: ClusterProfile) -> Iterator[Finding]:
    if len(plan.components) > 1 and spec.slurm.nodelist and plan.scheduler == "slurm":
        yield error(
            "group.nodelist",
            "`slurm.nodelist` names nodes for the whole run, and its groups ask Slurm for different nodes",
            "each of the groups would ask for these nodes, and two cannot have the same",
            "name them in `slurm.nodelist` of the group that needs them",
            path="slurm.nodelist",
        )


RULES = (mode_has_groups, array_of_components, nodelist_of_components)
