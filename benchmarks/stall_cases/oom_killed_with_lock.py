"""An actor process was killed (out of memory) while it held the replay's multiprocessing lock: all others wait for it.
---
expect:
  kind: [lock, worker-gone]
  ranks: [0]
  frame: write_replay
  never: ["(?i)lock of (its|their) own", "(?i)opposite order"]
"""

import multiprocessing
import os
import signal
import tempfile
import time

import _kit

context = multiprocessing.get_context("fork")
lock = context.Lock()
path = tempfile.mkdtemp() + "/replay"


def write_replay(item: bytes, dies: bool = False) -> None:
    with lock:
        with open(path, "ab") as file:
            file.write(item)
        if dies:
            os.kill(os.getpid(), signal.SIGKILL)  # the kernel's OOM killer


def actor(index: int) -> None:
    for step in range(10000):
        time.sleep(0.1)
        write_replay(b"episode", dies=index == 0 and step == 5)


actors = [context.Process(target=actor, args=(index,), daemon=True) for index in range(3)]
for process in actors:
    process.start()
_kit.steps()
os.waitid(os.P_PID, actors[0].pid, os.WEXITED | os.WNOWAIT)
_kit.here()
write_replay(b"end of epoch")
