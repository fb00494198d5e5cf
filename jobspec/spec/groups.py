"""`groups` of a job spec: unequal nodes in one run."""

from __future__ import annotations

from typing import Annotated

from jobspec.spec.fields import Base, Cpus, Gpus, Nodes, ServiceName, Size, Word, doc
from jobspec.spec.slurm import Placement


class GroupOptions(Placement, frozen=True):
    """What Slurm is told about these nodes. Missing values come from `slurm`; '' asks for none."""

    nodelist: Annotated[
        Word | None, doc("Nodes that must be among the group's (`--nodelist`).", "n[1-4]")
    ] = None


class Group(Base, frozen=True):
    """Nodes of one kind. Missing values come from `resources`, then from the site profile."""

    name: Annotated[
        ServiceName,
        doc(
            "Name, as in DNS; each of its nodes has one `group:NAME` of Ray's resources, and programs find "
            "their host names in JOBSPEC_GROUP_<NAME>.",
            "rollout",
        ),
    ]
    nodes: Annotated[Nodes, doc("Number of its nodes.", 4)] = 1
    gpus_per_node: Annotated[Gpus | None, doc("GPUs on each of its nodes; 0 for CPU only.", 8)] = None
    gpu_type: Annotated[
        Word | None, doc("Kind of GPU, as the profile's `slurm.gpu_types` names it.", "h200")
    ] = None
    cpus_per_node: Annotated[Cpus | None, doc("CPU cores on each of its nodes.", 96)] = None
    memory: Annotated[
        Size | None, doc("Memory of each of its nodes: a whole number with K, M, G or T.", "960G")
    ] = None
    slurm: Annotated[GroupOptions, doc("What Slurm is told about these nodes.")] = GroupOptions()
