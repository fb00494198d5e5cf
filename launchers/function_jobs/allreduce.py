"""All-reduce over every GPU of a check's nodes: is the sum right, and how fast does it move?

Run by path in one process a GPU, so standard library only at import. The figure is the bus bandwidth of
nccl-tests, which does not depend on the number of ranks: `2 (n - 1) / n` times bytes by time.
Source: nccl-tests, doc/PERFORMANCE.md, "Bus bandwidth".
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

GPU_BYTES, CPU_BYTES = 1024**3, 16 * 1024**2
WARM_UP, ROUNDS = 3, 10
TIMEOUT_S = 120.0
MARK = "jobspec-all-reduce: "


@dataclass(frozen=True)
class Reduced:
    """What rank 0 saw. `problem` is empty when the sum was right on every rank."""

    ranks: int
    backend: str = ""
    bytes: int = 0
    bus_gb_per_s: float = 0.0
    device: str = ""
    torch: str = ""
    nccl: str = ""
    variables: Mapping[str, str] = field(default_factory=dict)
    problem: str = ""


def run_node(
    hosts: Sequence[str], node: int, gpus: int, env: Mapping[str, str], port: int, processes: int = 0
) -> Reduced | None:
    """Start this node's ranks and wait for them; what rank 0 saw, on other nodes only a problem or None.

    `gpus` ranks by NCCL, or `processes` ranks by gloo on a node without GPUs.
    """
    count = gpus or processes
    ranks = {
        "WORLD_SIZE": str(count * len(hosts)),
        "MASTER_ADDR": hosts[0],
        "MASTER_PORT": str(port),
        "JOBSPEC_ALL_REDUCE": "nccl" if gpus else "gloo",
    }
    started = [
        subprocess.Popen(
            [sys.executable, str(Path(__file__))],
            env={**os.environ, **env, **ranks, "RANK": str(node * count + local), "LOCAL_RANK": str(local)},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
        )
        for local in range(count)
    ]
    return _result(started, count * len(hosts), node == 0)


def _result(started: Sequence[subprocess.Popen[str]], ranks: int, first_node: bool) -> Reduced | None:
    end = time.monotonic() + TIMEOUT_S
    output: list[str] = []
    for process in started:
        try:
            output.append(process.communicate(timeout=max(0.1, end - time.monotonic()))[0])
        except subprocess.TimeoutExpired:
            for other in started:
                other.kill()
            return Reduced(ranks, problem=f"the ranks did not end within {TIMEOUT_S:.0f} s")
    bad = next((text for process, text in zip(started, output, strict=True) if process.returncode), None)
    if bad is not None:
        return Reduced(ranks, problem=(bad.strip().splitlines() or ["a rank ended and printed nothing"])[-1])
    line = next((row for row in output[0].splitlines() if row.startswith(MARK)), None)
    if line is None or not first_node:
        return None
    return Reduced(**json.loads(line.removeprefix(MARK)))


def main() -> int:
    """One rank: sum ones, compare, then take the time of `ROUNDS` sums."""
    import torch
    import torch.distributed as dist

    backend = os.environ["JOBSPEC_ALL_REDUCE"]
    gpu = backend == "nccl"
    device = torch.device("cuda", int(os.environ["LOCAL_RANK"])) if gpu else torch.device("cpu")
    if gpu:
        torch.cuda.set_device(device)
    dist.init_process_group(backend)
    size = GPU_BYTES if gpu else CPU_BYTES
    ranks, rank = dist.get_world_size(), dist.get_rank()
    data = torch.full((size // 4,), float(rank + 1), device=device)
    dist.all_reduce(data)
    right = bool((data == ranks * (ranks + 1) / 2).all())
    agreed = torch.tensor([float(right)], device=device)
    dist.all_reduce(agreed, dist.ReduceOp.MIN)
    seconds = _seconds(data, gpu)
    if rank == 0:
        reduced = _seen(ranks, backend, size, seconds, bool(agreed.item()))
        sys.stdout.write(MARK + json.dumps(asdict(reduced)) + "\n")
    dist.destroy_process_group()
    return 0


def _seconds(data: Any, gpu: bool) -> float:
    """Mean seconds of one all-reduce."""
    import torch
    import torch.distributed as dist

    data.zero_()
    for count in (WARM_UP, ROUNDS):
        dist.barrier()
        if gpu:
            torch.cuda.synchronize()
        start = time.perf_counter()
        for _ in range(count):
            dist.all_reduce(data)
        if gpu:
            torch.cuda.synchronize()
    return (time.perf_counter() - start) / ROUNDS


def _seen(ranks: int, backend: str, size: int, seconds: float, right: bool) -> Reduced:
    import torch

    gpu = backend == "nccl"
    return Reduced(
        ranks=ranks,
        backend=backend,
        bytes=size,
        bus_gb_per_s=round(2 * (ranks - 1) / ranks * size / seconds / 1e9, 2),
        device=torch.cuda.get_device_name() if gpu else "cpu",
        torch=torch.__version__,
        nccl=".".join(map(str, torch.cuda.nccl.version())) if gpu else "",  # type: ignore[no-untyped-call]
        variables={name: value for name, value in sorted(os.environ.items()) if name.startswith("NCCL_")},
        problem="" if right else "the sum of the ranks' numbers is wrong",
    )


if __name__ == "__main__":
    sys.exit(main())
