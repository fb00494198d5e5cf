"""Each rank makes the groups in which it has no part first: rank 0 has made that of the critic and is at the barrier behind it, ranks 1 and 2 make that of the actor and wait for rank 0.
---
ranks: 3
expect:
  kind: [rendezvous, store, collective-differs, collective-order, collective-absent, rank-differs]
  ranks: [0]
  says: ["new_group|make_groups", barrier]
  never: ["(?i)sleeps", "(?i)computes", "[Aa]ll ranks[^;.]* same", "rank 0( on [^ ]+)?( pid [0-9]+,?)? is gone"]
"""

import _kit
import torch

ROLES = {"actor": [0, 1, 2], "critic": [1, 2]}


def make_groups(rank: int) -> dict[str, object]:
    groups = {}
    # those of the others cost nothing, so they are made first
    for role in sorted(ROLES, key=lambda role: rank in ROLES[role]):
        groups[role] = dist.new_group(ROLES[role])
        dist.barrier()  # all have it
    return groups


dist = _kit.gloo()
if _kit.RANK == 0:
    _kit.here()
groups = make_groups(_kit.RANK)
dist.all_reduce(torch.ones(4), group=groups["actor"])
