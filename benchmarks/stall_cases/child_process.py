"""Rank 0 waits for a program that it has started.
---
ranks: 2
expect: {kind: [subprocess], ranks: [0], frame: convert, says: [barrier]}
"""

import subprocess

import _kit

dist = _kit.gloo()


def convert() -> None:
    _kit.here()
    subprocess.run(["sleep", "3600"])


if _kit.RANK == 0:
    convert()
dist.barrier()
