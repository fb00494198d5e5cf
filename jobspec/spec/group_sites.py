"""The groups of a run: each is settled as the spec of a run of its own would be."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from msgspec import structs

from jobspec.finding import Finding, error

if TYPE_CHECKING:
    from jobspec.spec.groups import Group
    from jobspec.spec.job import JobSpec
    from jobspec.spec.site import ClusterProfile

OF_RESOURCES = ("gpus_per_node", "gpu_type", "cpus_per_node", "memory")


@dataclass(frozen=True)
class GroupSite:
    """One group: `spec` asks for its nodes alone, and `profile` is the site as they have it."""

    group: Group
    spec: JobSpec
    profile: ClusterProfile

    @property
    def gpus(self) -> int:
        given = self.spec.resources.gpus_per_node
        if given is not None:
            return given
        return 0 if self.profile.scheduler == "local" else self.profile.node.gpus


def spec_of(spec: JobSpec, group: Group) -> JobSpec:
    """The spec as the group alone would have it."""
    given = {key: value for key in OF_RESOURCES if (value := getattr(group, key)) is not None}
    if group.gpus_per_node == 0:
        given.setdefault("gpu_type", None)
    options = structs.asdict(group.slurm)
    placed = {key: value for key, value in options.items() if value is not None}
    return structs.replace(
        spec,
        resources=structs.replace(spec.resources, nodes=group.nodes, **given),
        slurm=structs.replace(spec.slurm, **placed),
        groups=(),
    )


def at_group(finding: Finding, group: Group, index: int) -> Finding:
    """A finding about the spec of `spec_of`, at the group's own key where the group gives it."""
    section, _, key = finding.path.partition(".")
    own = {"resources": group, "slurm": group.slurm}.get(section)
    if not key or (key != "nodes" and getattr(own, key, None) is None):
        return finding
    below = "slurm." if section == "slurm" else ""
    path = f"groups[{index}].{below}{key}"
    fix = finding.fix.replace(f"`{finding.path}`", f"`{path}`")
    return replace(finding, what=f"group `{group.name}`: {finding.what}", fix=fix, path=path)


def sum_of_nodes(spec: JobSpec, given: object) -> Iterator[Finding]:
    """An error where `resources.nodes`, as the spec has it, is another number than the groups' nodes."""
    total = sum(group.nodes for group in spec.groups)
    if given is not None and given != total:
        sums = " + ".join(f"{group.nodes} of `{group.name}`" for group in spec.groups)
        yield error(
            "group.nodes",
            f"`resources.nodes` is {given}, and the groups have {total} nodes",
            f"{sums}: a run has the nodes of its groups and no others",
            "remove `resources.nodes`, which is their sum",
            path="resources.nodes",
        )
