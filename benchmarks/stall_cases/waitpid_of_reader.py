"""A trainer forks a log writer that reads its pipe to the end, and waits for it with its own end still open.
---
expect:
  kind: [subprocess, pipe, join]
  says: ["close_log|write_log"]
  never: ["sleeps", "computes", "(?i)network", "(?i)queue"]
"""

import os

import _kit


def write_log(source: int) -> None:
    while os.read(source, 100):
        pass


def close_log(pid: int) -> None:
    os.waitpid(pid, 0)


_kit.steps()
source, sink = os.pipe()
pid = os.fork()
if pid == 0:
    os.close(sink)
    write_log(source)
    os._exit(0)
os.write(sink, b"step 4\n")
_kit.here()
close_log(pid)
