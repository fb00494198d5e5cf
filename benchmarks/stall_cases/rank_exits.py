"""Rank 1 ends well before it joins the group, and the others wait for it.
---
ranks: 3
expect: {kind: [rank-gone], says: ["rank 1 has no process", init_process_group]}
"""

import os

import _kit

_kit.steps()
if _kit.RANK == 1:
    _kit.here()
    os._exit(0)
_kit.gloo()
