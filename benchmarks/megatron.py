"""How long judging a Megatron run takes: rules, estimate and proposals, in this process.

    python benchmarks/megatron.py [--shapes N] [--json]

The shapes are all combinations of small sizes for Nemotron-3-Ultra on 64 GPUs, taken in turn: most break a
rule, as they would in a sweep. A proposal searches all shapes and is asked for at most once in a spec.
"""

from __future__ import annotations

import argparse
import itertools
import json
import time
from collections.abc import Callable
from dataclasses import replace

from jobspec.megatron.architecture import Architecture, find_architecture, known_architectures
from jobspec.megatron.memory import estimate
from jobspec.megatron.rules import check_shape
from jobspec.megatron.shape import OptimizerShape, Recompute, TrainShape
from jobspec.megatron.shapes import suggest
from jobspec.units import GIB

BASE = TrainShape(
    8,
    8,
    etp=1,
    seq_length=10240,
    tokens_per_microbatch=40960,
    global_batch=320,
    fp32_grads=False,
    optimizer=OptimizerShape(offload=1.0),
    recompute=Recompute("full", "uniform", 1),
)


def shapes(count: int) -> list[TrainShape]:
    sizes = itertools.cycle(itertools.product((1, 2, 4, 8), (1, 2, 4, 8), (1, 2, 4), (1, 4, 8, 16, 32, 64)))
    return [replace(BASE, tp=tp, pp=pp, cp=cp, ep=ep) for tp, pp, cp, ep in itertools.islice(sizes, count)]


def milliseconds(work: Callable[[], object]) -> float:
    start = time.perf_counter()
    work()
    return 1000 * (time.perf_counter() - start)


def measure(arch: Architecture, count: int) -> dict[str, float]:
    asked = shapes(count)
    return {
        f"rules, {count} shapes": milliseconds(lambda: [check_shape(shape, arch) for shape in asked]),
        f"estimate, {count} shapes": milliseconds(lambda: [estimate(s, arch, 141 * GIB) for s in asked]),
        "rules and estimate, one shape": milliseconds(
            lambda: (check_shape(asked[-1], arch), estimate(asked[-1], arch, 141 * GIB))
        ),
        "proposals, one shape": milliseconds(lambda: suggest(BASE, arch, 141 * GIB)),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--shapes", type=int, default=1000)
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    table = milliseconds(known_architectures)
    arch = find_architecture("NVIDIA-Nemotron-3-Ultra-550B-A55B")
    if arch is None:
        raise SystemExit("the table has no Nemotron-3-Ultra")
    rows = {"read the table of models, once": table, **measure(arch, args.shapes)}
    if args.json:
        print(json.dumps(rows, indent=2))
        return
    for name, value in rows.items():
        print(f"{value:10.1f} ms  {name}")


if __name__ == "__main__":
    main()
