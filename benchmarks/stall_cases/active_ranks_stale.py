"""Rank 3 was taken out of the active rollout ranks, but still has the old list: it makes a group of all four for itself and waits for the others there, which have made theirs of three and are at the barrier.
---
ranks: 4
expect:
  kind: [rendezvous, store, rank-differs, collective-absent, collective-differs, waits]
  ranks: [3]
  says: ["new_group|_new_process_group_helper|reform", "barrier"]
  never: ["rank [0-3]( on [^ ]+)?( pid [0-9]+,?)? (sleeps|is gone|has ended)", "[Aa]ll ranks[^;.]* same", "(?i)computes"]
"""

import json

import _kit
import torch

dist = _kit.gloo()
store = dist.distributed_c10d._get_default_store()


class Membership:
    def __init__(self) -> None:
        self.active = list(range(_kit.WORLD))

    def refresh(self) -> None:
        self.active = json.loads(store.get("active"))

    def reform(self) -> object:
        return dist.new_group(self.active, use_local_synchronization=True)


def rollouts(prompts: list[str], members: Membership) -> torch.Tensor:
    if not prompts:
        return torch.zeros(4)
    members.refresh()
    return torch.ones(4) * len(prompts)


members = Membership()
if _kit.RANK == 0:  # rank 3's engine was too slow in the last step
    store.set("active", json.dumps([0, 1, 2]))
dist.barrier()
tokens = rollouts([] if _kit.RANK == 3 else ["a", "b"], members)
if _kit.RANK == 3:
    _kit.here()
group = members.reform()
if _kit.RANK in members.active:
    dist.all_reduce(tokens, group=group)
dist.barrier()
