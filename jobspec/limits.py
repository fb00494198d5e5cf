"""What a run did not prove, said without being asked (design section 8)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from jobspec.evidence import Evidence

if TYPE_CHECKING:
    from jobspec.frameworks.base import Level

PARALLEL = {
    "tp": "tensor parallelism",
    "pp": "pipeline parallelism",
    "ep": "expert parallelism",
    "etp": "expert tensor parallelism",
    "cp": "context parallelism",
}


def limitations(evidence: Evidence, level: Level | None) -> tuple[str, ...]:
    """One sentence per claim that the run must not be taken for, each once."""
    found = [*(level.not_proved if level is not None else ()), *evidence.plan.expect.limitations]
    found.extend(_of_resources(evidence))
    found.extend(_of_sources(evidence))
    found.extend(_of_training(evidence))
    if evidence.plan.expect.learning is not None and not any("convergence" in item for item in found):
        found.append("a learning signal over few steps is no convergence")
    return tuple(dict.fromkeys(found))


def _of_resources(evidence: Evidence) -> Iterator[str]:
    plan = evidence.plan
    if evidence.foreign and not (plan.nodes and plan.gpus_per_node):
        yield "how many nodes and GPUs took part is not among the files: nothing is claimed about either"
    elif plan.gpus_per_node == 0:
        yield "no GPU took part: nothing is proved about CUDA, NCCL or GPU memory"
    if plan.nodes == 1:
        yield "one node took part: nothing is proved about the network between nodes"
    for key, name in PARALLEL.items():
        if plan.expect.options.get(key) == 1:
            yield f"{key} = 1: no {name} is proved"


def _of_sources(evidence: Evidence) -> Iterator[str]:
    plan = evidence.plan
    if plan.repos and not plan.proofs:
        yield "no import proof was asked for: which checkout was imported is not proved"
    for repo in plan.repos:
        if repo.dirty:
            yield f"repository `{repo.name}` had uncommitted changes: its commit alone is not what ran"


def _of_training(evidence: Evidence) -> Iterator[str]:
    expect = evidence.plan.expect
    if not expect.checkpoint:
        yield "checkpointing was off: neither saving nor resuming is proved"
    elif not expect.resume:
        yield "no resume was asked for: that a checkpoint can be continued from is not proved"
    if len(evidence.attempts) > 1:
        yield f"the run took {len(evidence.attempts)} attempts; only the last one decides"
