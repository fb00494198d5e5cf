"""For the programs of this folder: a few steps of work, and the mark from which on the run stands."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

RANK, WORLD = int(os.environ.get("RANK", "0")), int(os.environ.get("WORLD_SIZE", "1"))


def here(pid: int | None = None) -> None:
    """From now on nothing goes on. `pid` is whom the benchmark stops or kills."""
    Path(os.environ["JOBSPEC_ATTEMPT_DIR"], "stalled").write_text(f"{pid or os.getpid()}\n")


def steps(count: int = 3) -> None:
    for step in range(1, count + 1):
        print(f"step {step}", flush=True)
        time.sleep(0.2)


def gloo() -> Any:
    """`torch.distributed` after three steps of `all_reduce`."""
    import torch
    import torch.distributed as dist

    dist.init_process_group("gloo")
    for step in range(1, 4):
        dist.all_reduce(torch.ones(4))
        print(f"step {step}", flush=True)
    return dist


def nccl() -> Any:
    """The same with NCCL, one GPU a rank."""
    import torch
    import torch.distributed as dist

    torch.cuda.set_device(RANK)
    dist.init_process_group("nccl")
    for step in range(1, 4):
        dist.all_reduce(torch.ones(4, device="cuda"))
        torch.cuda.synchronize()
        print(f"step {step}", flush=True)
    return dist
