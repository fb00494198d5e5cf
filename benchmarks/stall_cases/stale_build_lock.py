"""Rank 1 waits for the lock file of a kernel's build that a killed run has left in its extension cache.
---
ranks: 2
expect:
  kind: [sleep, file-lock, lock, other]
  ranks: [1]
  says: ["load_kernel|file_baton|FileBaton|baton", barrier]
  never: ["(?i)thread .* holds the lock", "(?i)compiler is running"]
"""

import os
import tempfile

import _kit
from torch.utils.file_baton import FileBaton

dist = _kit.gloo()
cache = tempfile.mkdtemp(prefix=f"torch_extensions_rank{_kit.RANK}_")  # each node has its own
if _kit.RANK == 1:
    open(os.path.join(cache, "lock"), "w").close()  # the run of yesterday was killed in its build


def load_kernel(folder: str) -> str:
    """As `torch.utils.cpp_extension.load` does it."""
    library = os.path.join(folder, "fused_logprob.so")
    baton = FileBaton(os.path.join(folder, "lock"))
    if baton.try_acquire():
        try:
            open(library, "wb").close()
        finally:
            baton.release()
    else:
        _kit.here()
        baton.wait()
    return library


load_kernel(cache)
dist.barrier()
