"""The memory estimate beside measured peaks of Megatron-Core: error of each point, median and worst.

    python benchmarks/gpu/memory_score.py [POINTS.json]

Points come from `memory.py`; without an argument those measured on H200s are taken. torch's peak holds what
the allocator gave out, so the estimate's context, communicators and fragmentation do not count here.
"""

from __future__ import annotations

import json
import statistics
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from jobspec.megatron.architecture import Architecture
from jobspec.megatron.memory import StageMemory, estimate
from jobspec.megatron.shape import OptimizerShape, Recompute, TrainShape
from jobspec.units import GIB

POINTS = Path(__file__).with_name("memory_h200.json")
BORDER = Path(__file__).with_name("border_h200.json")
CAPACITY = 141 * GIB  # an H200
OUTSIDE = ("CUDA and NCCL", "fragmentation")


@dataclass(frozen=True)
class Score:
    name: str
    measured: int
    estimated: int
    parts: dict[str, float]

    @property
    def error(self) -> float:
        """Share of the measured peak; positive where the estimate is too high."""
        return self.estimated / self.measured - 1


def architecture(point: dict[str, Any]) -> Architecture:
    """The model of a point in the estimate's words."""
    experts = int(point["experts"])
    return Architecture(
        name=point["name"],
        source="benchmarks/gpu/memory.py",
        hidden=point["hidden"],
        heads=point["heads"],
        kv_groups=point["kv_heads"],
        head_dim=point["hidden"] // point["heads"],
        ffn=point["ffn"],
        vocab=point["vocab"],
        layers=("*E" if experts else "*-",) * int(point["layers"]),
        experts=experts,
        topk=point["topk"] if experts else 0,
        moe_ffn=point["ffn"] if experts else 0,
    )


def shape(point: dict[str, Any]) -> TrainShape:
    """The layout of a point: neither Transformer Engine nor Apex, so attention and Adam are torch's own."""
    granularity = point["recompute"]
    method, layers = ("uniform", 1) if granularity == "full" else ("", None)
    return TrainShape(
        nodes=1,
        gpus_per_node=point["gpus"],
        framework="megatron",
        tp=point["tp"],
        ep=point["ep"],
        etp=point["tp"] if point["experts"] else None,
        sequence_parallel=point["sequence_parallel"],
        seq_length=point["seq"],
        micro_batch=point["micro_batch"],
        global_batch=point["micro_batch"] * point["gpus"] // point["tp"],
        fp32_grads=True,
        optimizer=OptimizerShape(fused=False),
        recompute=Recompute(granularity, method, layers),
        attention="unfused",
    )


def score(row: dict[str, Any]) -> Score:
    point = row["point"]
    stage: StageMemory = estimate(shape(point), architecture(point)).worst
    counted = {part.name: part.bytes / GIB for part in stage.parts if part.name not in OUTSIDE}
    return Score(point["name"], row["peak_bytes"], int(sum(counted.values()) * GIB), counted)


def outcomes(rows: list[dict[str, Any]], capacity: int = CAPACITY) -> dict[str, tuple[bool, str]]:
    """Whether each point at the border ran out of memory, and what the estimate says of it."""
    return {
        row["point"]["name"]: (
            bool(row.get("oom")),
            estimate(shape(row["point"]), architecture(row["point"]), capacity).outcome,
        )
        for row in rows
        if "problem" not in row
    }


def main() -> int:
    path = Path(sys.argv[1]) if len(sys.argv) > 1 else POINTS
    scores = [score(row) for row in json.loads(path.read_text()) if "problem" not in row]
    print("| point | measured GiB | estimated GiB | error | of it |\n|---|---|---|---|---|")
    for item in scores:
        parts = ", ".join(f"{name} {value:.2f}" for name, value in item.parts.items())
        values = f"{item.measured / GIB:.2f} | {item.estimated / GIB:.2f} | {item.error:+.1%}"
        print(f"| {item.name} | {values} | {parts} |")
    sizes = [abs(item.error) for item in scores]
    print(f"\n{len(scores)} points: median error {statistics.median(sizes):.1%}, worst {max(sizes):.1%}")
    for name, (oom, said) in outcomes(json.loads(BORDER.read_text())).items():
        print(f"{name}: {'out of memory' if oom else 'ran'}; the estimate says: {said}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
