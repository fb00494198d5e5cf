"""Four ranks in two groups; rank 3 does not come to the barrier of its group.
---
ranks: 4
expect: {kind: [sleep], ranks: [3], frame: save}
"""

import time

import _kit

dist = _kit.gloo()
groups = [dist.new_group([0, 1]), dist.new_group([2, 3])]


def save() -> None:
    _kit.here()
    time.sleep(3600)


if _kit.RANK == 3:
    save()
dist.barrier(groups[_kit.RANK // 2])
if _kit.RANK < 2:
    dist.barrier()
