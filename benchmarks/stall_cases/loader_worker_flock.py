"""The data loader's worker of rank 0 waits for the flock of an index that rank 1's main process holds at a barrier.
---
ranks: 2
expect: {kind: [file-lock, loader, rank-differs, waits], says: ["lock"], never: ["no other process"]}
"""

import fcntl
import os

import _kit
from torch.utils.data import DataLoader, Dataset

PATH = os.path.join(os.environ["JOBSPEC_ATTEMPT_DIR"], "index.bin")


class Rows(Dataset):
    def __len__(self) -> int:
        return 8

    def __getitem__(self, number: int) -> int:
        with open(PATH, "a") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            return number


dist = _kit.gloo()
if _kit.RANK == 1:
    index = open(PATH, "a")
    fcntl.flock(index, fcntl.LOCK_EX)
dist.barrier()
if _kit.RANK == 0:
    _kit.here()
    print(list(DataLoader(Rows(), num_workers=1)))
dist.barrier()
