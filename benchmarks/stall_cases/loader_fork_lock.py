"""The DataLoader's workers of rank 1 were forked while a thread held the lock that they need.
---
ranks: 2
expect:
  kind: [loader, lock]
  says: ["(?i)loader|worker|__getitem__", "rank 1|__getitem__"]
  never: ["rank 0( on [^ ]+)?( pid [0-9]+,?)? (sleeps|has not come|does not come|is gone)",
          "worker (is gone|died|was killed)"]
"""

import threading

import _kit
import torch
from torch.utils.data import DataLoader, Dataset

dist = _kit.gloo()
cache_lock = threading.Lock()
held, forked = threading.Event(), threading.Event()


class Prompts(Dataset):
    def __len__(self) -> int:
        return 64

    def __getitem__(self, index: int) -> int:
        with cache_lock:
            return index


def refresh_cache() -> None:
    with cache_lock:
        held.set()
        forked.wait()


if _kit.RANK == 1:
    thread = threading.Thread(target=refresh_cache)
    thread.start()
    held.wait()
    batches = iter(DataLoader(Prompts(), batch_size=8, num_workers=2, multiprocessing_context="fork"))
    forked.set()
    thread.join()  # here the lock is free again, in the workers it never is
    _kit.here()
    print(next(batches))
dist.all_reduce(torch.ones(4))
