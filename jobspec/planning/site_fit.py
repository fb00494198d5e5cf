"""Whether a site can hold a maintained recipe at its own size: its nodes, its GPUs and their memory."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from jobspec.checks.megatron import Training, check_training
from jobspec.frameworks.base import RecipeNote
from jobspec.megatron.architecture import find_architecture
from jobspec.spec.site import ClusterProfile
from jobspec.units import parse_bytes


@dataclass(frozen=True)
class Fit:
    """The answer and its reason; `not known` where the profile or the model's sizes are missing."""

    holds: Literal["yes", "no", "not known"]
    why: str = ""
    of_site: bool = False
    """The profile lacks what the answer needs, for every recipe alike."""


def site_fit(recipe: RecipeNote, profile: ClusterProfile) -> Fit:
    """What the profile and the memory estimate say; an estimate alone is no measurement."""
    node, most = profile.node, profile.limits.max_nodes
    if node.gpus and recipe.gpus > node.gpus:
        return Fit("no", f"it needs {recipe.gpus} GPUs on each node, and a node has {node.gpus}")
    if most and recipe.nodes > most:
        return Fit("no", f"it needs {recipe.nodes} nodes, and a job may have {most}")
    if not node.gpus or not node.gpu_memory:
        missing = "node.gpus" if not node.gpus else "node.gpu_memory"
        return Fit("not known", f"the site profile has no `{missing}`", of_site=True)
    arch = find_architecture(recipe.model) if recipe.model else None
    if recipe.shape is None or arch is None:
        return Fit("not known", f"the sizes of `{recipe.model}` are not in jobspec's table")
    gpu, host = parse_bytes(node.gpu_memory), parse_bytes(node.memory) if node.memory else 0
    errors = [item for item in check_training(Training(recipe.shape, arch, gpu, host)) if item.is_error]
    return Fit("no", errors[0].what) if errors else Fit("yes", "by the memory estimate")
