"""Rank 1 has the port of the last run in its settings and connects to a store that is not there; ranks 0 and 2 wait for it in init_process_group.
---
ranks: 3
expect:
  kind: [rendezvous, network, rank-differs, collective-absent, sleep]
  says: ['join_run|init_process_group']
  never: ['rank [02] .*(sleep|comput)', 'deadlock']
"""

import datetime
import os

import _kit
import torch.distributed as dist


def join_run():
    if _kit.RANK == 1:
        os.environ["MASTER_PORT"] = "29123"
    dist.init_process_group("gloo", timeout=datetime.timedelta(hours=10))


_kit.steps()
_kit.here()
join_run()
