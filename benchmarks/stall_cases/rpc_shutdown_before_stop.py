"""Rank 0 ends RPC, which waits for all, before it tells rank 2's evaluator to stop: the evaluator waits for that word.
---
ranks: 3
expect:
  kind: [lock, waits, rank-differs, collective-absent, other]
  ranks: [2]
  says: ["serve_evaluations|stopped", "shutdown"]
  never: ["(?i)sleeps", "(?i)computes", "rank [0-2]( on [^ ]+)?( pid [0-9]+,?)? is gone"]
"""

import threading

import _kit
from torch.distributed import rpc

NAMES = ["trainer", "engine", "evaluator"]
stopped = threading.Event()


def stop() -> None:
    stopped.set()


def evaluate(step: int) -> float:
    return 0.5 + step / 100


def serve_evaluations() -> None:
    _kit.here()
    stopped.wait()


def close() -> None:
    rpc.shutdown()
    rpc.rpc_sync("evaluator", stop)


rpc.init_rpc(NAMES[_kit.RANK], rank=_kit.RANK, world_size=_kit.WORLD)
if _kit.RANK == 0:
    for step in range(1, 4):
        rpc.rpc_sync("evaluator", evaluate, args=(step,))
        print(f"step {step}", flush=True)
    close()
else:
    if _kit.RANK == 2:
        serve_evaluations()
    rpc.shutdown()
