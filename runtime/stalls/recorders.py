"""Asks torch's flight recorders on this node for a dump, and reads what they write.

A byte into the pipe of a process makes its NCCL monitor write a file (ProcessGroupNCCL.cpp, `DumpPipe`). gloo
has no such pipe. A process that has no pipe open, or does not write in time, is left out.
"""

from __future__ import annotations

import contextlib
import os
import re
import time
from pathlib import Path
from typing import Any, Dict, List

from jobspec.runtime.stalls import flight

WRITE_S = 10.0  # 5.4 s were seen with torch 2.11
_RANK = re.compile(r"(\d+)\.pipe$")


def ask(folder: Path) -> List[Dict[str, Any]]:
    """The compact dumps of all ranks that answer."""
    asked = {
        rank: folder / f"trace_rank_{rank}" for pipe in folder.glob("*.pipe") if (rank := _asked(pipe)) >= 0
    }
    began, end = time.time() - 1.0, time.monotonic() + (WRITE_S if asked else 0.0)
    sizes: Dict[int, int] = {}
    while time.monotonic() < end:
        time.sleep(0.2)
        now = {rank: _written(file, began) for rank, file in asked.items()}
        if now == sizes and all(now.values()):  # torch does not write at once
            break
        sizes = now
    found: List[Dict[str, Any]] = []
    for rank, file in asked.items():
        with contextlib.suppress(OSError, flight.DumpError):
            if sizes.get(rank):
                found.append(flight.compact(flight.read(file, rank)))
    return found


def _asked(pipe: Path) -> int:
    """The rank whose process reads the pipe, and has been asked; -1 where nobody reads it."""
    rank = _RANK.search(pipe.name)
    try:
        writer = os.open(pipe, os.O_WRONLY | os.O_NONBLOCK)
    except OSError:
        return -1
    try:
        os.write(writer, b"1\n")
    except OSError:
        return -1
    finally:
        os.close(writer)
    return int(rank[1]) if rank else -1


def _written(file: Path, since: float) -> int:
    with contextlib.suppress(OSError):
        told = file.stat()
        return told.st_size if told.st_mtime >= since else 0
    return 0
