"""Rank 3 does not take part in making a new process group: it goes straight to its data.
---
ranks: 4
expect:
  kind: [collective, rendezvous, sleep, rank-differs]
  ranks: [3]
  frame: stream_data
  says: ["new_group|make_groups"]
  never: ["rank [0-2]( on [^ ]+)?( pid [0-9]+,?)? (sleeps|has not come|does not come|is gone)"]
"""

import time

import _kit

dist = _kit.gloo()


def make_groups() -> None:
    dist.new_group([0, 1, 2, 3])


def stream_data() -> None:
    _kit.here()
    time.sleep(3600)


if _kit.RANK == 3:
    stream_data()
else:
    make_groups()
