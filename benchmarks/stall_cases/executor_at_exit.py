"""The run is over, but the executor's thread still waits at its rows: Python joins it at the end.
---
expect:
  kind: [join, queue]
  says: ["upload_rows"]
  never: ["sleeps", "computes", "(?i)network", "between processes"]
"""

import queue
from concurrent.futures import ThreadPoolExecutor

import _kit

rows: queue.Queue = queue.Queue()


def upload_rows() -> None:
    while True:
        print(rows.get(), flush=True)


_kit.steps()
pool = ThreadPoolExecutor(1, thread_name_prefix="uploader")
pool.submit(upload_rows)
rows.put("step 4")
_kit.here()
