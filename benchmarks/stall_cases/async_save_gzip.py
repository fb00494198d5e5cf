"""Rank 0's saver thread writes a checkpoint into gzip and would read its output only then: both pipes are full.
---
ranks: 2
expect: {kind: [pipe, subprocess], ranks: [0], frame: compress, says: [barrier, "gzip|pipe"]}
"""

import os
import subprocess
from concurrent.futures import Future, ThreadPoolExecutor

import _kit

dist = _kit.gloo()


def compress(state: bytes) -> bytes:
    with subprocess.Popen(["gzip", "-1", "-c"], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as gzip:
        gzip.stdin.write(state)
        gzip.stdin.close()
        return gzip.stdout.read()


def finish_save(saving: Future) -> None:
    print(len(saving.result()), "bytes saved", flush=True)


saver = ThreadPoolExecutor(1)
if _kit.RANK == 0:
    finish_save(saver.submit(compress, os.urandom(1000)))
    saving = saver.submit(compress, os.urandom(16 << 20))
    _kit.here()
    finish_save(saving)
dist.barrier()
