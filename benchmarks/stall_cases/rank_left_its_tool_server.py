r"""Rank 2 ends before it joins the group, but the tool server that it has started lives on; the others wait for it.
---
ranks: 3
expect:
  kind: [rank-gone]
  says: ['rank 2']
  never: ['rank 2 on `\S+`, pid \d+ (sleeps|waits|uses)']
"""

import os
import subprocess
import sys
import time

import _kit

SERVER = "import time\nwhile True:\n    time.sleep(30)\n"

_kit.steps()
if _kit.RANK == 2:
    subprocess.Popen([sys.executable, "-c", SERVER], start_new_session=True)
    time.sleep(1)
    _kit.here()
    os._exit(0)
_kit.gloo()
