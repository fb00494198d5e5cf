"""`jobspec explain SPEC memory`: a Megatron run's estimate as a table, every part with its arithmetic."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from jobspec.cli import output
from jobspec.finding import JobspecError, fail
from jobspec.units import GIB, gib

if TYPE_CHECKING:
    from jobspec.checks.megatron import Training
    from jobspec.megatron.memory import Estimate, StageMemory
    from jobspec.planning.resolve import Resolved


def print_memory(resolved: Resolved, as_json: bool) -> int:
    """Exit code 2 when the spec has an error, such as `memory.gpu`; 0 otherwise.

    Raises: JobspecError when there is no Megatron run, or its model is not known.
    """
    training = _training(resolved)
    memory = training.memory
    if memory is None:
        raise JobspecError(*resolved.findings) if resolved.findings else _no_model()
    if as_json:
        output.print_json(_data(training, memory))
    else:
        _print(training, memory)
        output.print_findings(resolved.findings)
    return 2 if any(finding.is_error for finding in resolved.findings) else 0


def _training(resolved: Resolved) -> Training:
    if resolved.training is not None:
        return resolved.training
    if any(finding.is_error for finding in resolved.findings):
        raise JobspecError(*resolved.findings)
    raise fail(
        "usage.memory",
        f"framework `{resolved.spec.framework}` says nothing about Megatron in this spec",
        why="the estimate needs the sizes that a spec sets for Megatron",
        path="framework",
    )


def _no_model() -> JobspecError:
    return fail(
        "megatron.model-unknown",
        "the spec names no model, so its sizes are not known",
        fix="set `model.id`, `model.path` or `model.config`",
        path="model",
    )


def _print(training: Training, memory: Estimate) -> None:
    shape, arch = training.shape, training.arch
    if arch is not None:
        output.print_mapping(
            {"model": f"{arch.name or 'unnamed'} ({arch.source})", "shape": _sizes(training)}
        )
        print()
    worst = memory.worst
    rows = [(part.name, _cell(part.bytes), part.how) for part in worst.parts]
    of = f" of {gib(memory.usable, 1)}: {memory.outcome}" if memory.capacity else ""
    place = f"the worst of {shape.pp} pipeline stages, stage {worst.stage.index}" if shape.pp > 1 else "each"
    output.print_table((f"GPU ({place})", "GIB", "HOW"), [*rows, ("total", _cell(worst.bytes), of.strip())])
    if shape.pp > 1:
        print()
        output.print_table(
            ("STAGE", "LAYERS", "GIB"),
            [(str(s.stage.index), str(len(s.stage.layers)), _cell(s.bytes)) for s in memory.stages],
        )
    if memory.host:
        print()
        rows = [(part.name, _cell(part.bytes), part.how) for part in memory.host]
        of = f"of {gib(memory.host_capacity)}: {memory.host_outcome}" if memory.host_capacity else ""
        output.print_table(("HOST", "GIB", "HOW"), [*rows, ("total", _cell(memory.host_bytes), of)])
    for text in (*memory.assumed, *_unknown(memory)):
        print(f"\nnote: {text}", end="")
    print()


def _unknown(memory: Estimate) -> list[str]:
    if memory.capacity:
        return []
    return ["the site profile has no `node.gpu_memory`, so whether the run fits is not known"]


def _sizes(training: Training) -> str:
    s = training.shape
    sizes = {"tp": s.tp, "pp": s.pp, "cp": s.cp, "ep": s.ep, "etp": s.expert_tp, "dp": s.dp}
    shown = ", ".join(f"{name} {value}" for name, value in sizes.items())
    return f"{s.nodes} x {s.gpus_per_node} GPUs; {shown}"


def _cell(size: int) -> str:
    return f"{size / GIB:.1f}"


def _data(training: Training, memory: Estimate) -> dict[str, Any]:
    return {
        "model": training.arch.name if training.arch else None,
        "outcome": memory.outcome,
        "gpu_bytes": memory.worst.bytes,
        "gpu_usable_bytes": memory.usable or None,
        "stages": [_stage(stage) for stage in memory.stages],
        "host_outcome": memory.host_outcome,
        "host_bytes": memory.host_bytes,
        "host": {part.name: part.bytes for part in memory.host},
        "assumed": list(memory.assumed),
        "suggestions": [item.text for item in training.suggestions],
    }


def _stage(stage: StageMemory) -> dict[str, Any]:
    return {
        "stage": stage.stage.index,
        "layers": len(stage.stage.layers),
        "bytes": stage.bytes,
        "parts": {part.name: part.bytes for part in stage.parts},
    }
