"""Rank 2 does not come to init_process_group.
---
ranks: 3
expect: {kind: [sleep], ranks: [2], frame: download, says: [init_process_group]}
"""

import time

import _kit


def download() -> None:
    _kit.here()
    time.sleep(3600)


_kit.steps()
if _kit.RANK == 2:
    download()
_kit.gloo()
