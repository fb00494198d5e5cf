"""All three ranks join the weight group by its store and wait there for four members: the engine of a reference model is counted, which this run does not have.
---
ranks: 3
expect:
  kind: [store, rendezvous, network, waits]
  ranks: []
  says: ["join_weight_group|joined/3|[Ss]tore"]
  never: ["rank [0-2]( on [^ ]+)?( pid [0-9]+,?)? (sleeps|computes|is gone|has not come|does not come)", "(?i)event loop"]
"""

import datetime
import socket

import _kit
import torch
from torch.distributed import TCPStore

dist = _kit.gloo()


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        return server.getsockname()[1]


def join_weight_group(trainers: int, engines: int, references: int = 1) -> TCPStore:
    port = [free_port() if _kit.RANK == 0 else 0]
    dist.broadcast_object_list(port, src=0)
    day = datetime.timedelta(days=1)
    store = TCPStore("127.0.0.1", port[0], is_master=_kit.RANK == 0, timeout=day, wait_for_workers=False)
    if _kit.RANK == 0:
        _kit.here()
    store.set(f"joined/{_kit.RANK}", "ready")
    store.wait([f"joined/{member}" for member in range(trainers + engines + references)])
    return store


store = join_weight_group(trainers=1, engines=2)
group = dist.new_group([0, 1, 2])
dist.broadcast(torch.ones(1024), src=0, group=group)
