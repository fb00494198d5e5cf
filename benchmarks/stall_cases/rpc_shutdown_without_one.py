"""Ranks 0 and 2 are in rpc.shutdown(), which waits for all; rank 1 still waits for the event of its evaluation.
---
ranks: 3
expect:
  kind: [lock, idle, future, rank-differs, several]
  says: ['wait_evaluated']
  never: ['waits? for work', 'ranks 0, 2 .*store']
"""

import threading

import _kit
import torch.distributed.rpc as rpc

evaluated = threading.Event()


def wait_evaluated():
    _kit.here()
    evaluated.wait()


rpc.init_rpc(f"worker-{_kit.RANK}", rank=_kit.RANK, world_size=_kit.WORLD)
_kit.steps()
if _kit.RANK == 1:
    wait_evaluated()
rpc.shutdown()
