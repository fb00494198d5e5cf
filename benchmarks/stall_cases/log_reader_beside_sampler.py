"""Main joins the sampler thread, which waits for an event that only an error path sets; a second thread reads the engine's log lines from its pipe, which is healthy.
---
expect:
  kind: [lock, join]
  says: ['sample|sampler', 'wait']
  never: ['waits for a process', 'behind it (is )?pid', 'the cause is .*engine']
"""

import subprocess
import sys
import threading

import _kit

ENGINE = "import time\nwhile True:\n    print('throughput', flush=True)\n    time.sleep(2)\n"
ready = threading.Event()


def follow_log(engine):
    for line in engine.stdout:
        if b"error" in line:
            ready.set()


def sample():
    ready.wait()


_kit.steps()
engine = subprocess.Popen([sys.executable, "-u", "-c", ENGINE], stdout=subprocess.PIPE)
threading.Thread(target=follow_log, args=(engine,), name="engine-log", daemon=True).start()
sampler = threading.Thread(target=sample, name="sampler")
sampler.start()
_kit.here()
sampler.join()
