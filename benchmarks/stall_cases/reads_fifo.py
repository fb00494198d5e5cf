"""Rank 0 reads a checkpoint that never comes (a FIFO).
---
ranks: 3
expect: {kind: [pipe], ranks: [0], frame: read_state, says: [FIFO, barrier]}
"""

import os

import _kit

dist = _kit.gloo()


def read_state(path: str) -> None:
    os.mkfifo(path)
    _kit.here()
    with open(path, "rb") as file:
        file.read()


if _kit.RANK == 0:
    read_state(os.environ["JOBSPEC_SCRATCH"] + "/state.pt")
dist.barrier()
