"""A barrier of one's own over the store: rank 2 never adds itself, as it still waits for its reward thread; the others poll.
---
ranks: 3
expect: {kind: [join, sleep, network, rank-differs, waits], ranks: [2], says: ["score|rewards"]}
"""

import threading
import time

import _kit
import torch.distributed as dist_module

dist = _kit.gloo()
store = dist_module.distributed_c10d._get_default_store()


def barrier(name: str) -> None:
    store.add(name, 1)
    while store.add(name, 0) < _kit.WORLD:
        time.sleep(0.5)


def score() -> None:
    while True:
        time.sleep(30)


def rewards() -> None:
    thread = threading.Thread(target=score, name="reward")
    thread.start()
    _kit.here()
    thread.join()


barrier("first")
print("step 4", flush=True)
if _kit.RANK == 2:
    rewards()
barrier("second")
