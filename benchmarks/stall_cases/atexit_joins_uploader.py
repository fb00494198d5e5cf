"""The run is over, but its exit hook joins an uploader thread that nobody told to end.
---
expect:
  kind: [join, queue, lock]
  frame: flush_metrics
  says: ["flush_metrics|upload", "(?i)thread|join|exit|queue"]
  never: ["(?i)sleeps", "(?i)child process"]
"""

import atexit
import queue
import threading

import _kit

metrics: "queue.Queue[float | None]" = queue.Queue()


def upload() -> None:
    while (value := metrics.get()) is not None:
        print(f"loss {value}", flush=True)


uploader = threading.Thread(target=upload, name="uploader", daemon=True)


@atexit.register
def flush_metrics() -> None:
    _kit.here()
    uploader.join()  # without the None before it


uploader.start()
_kit.steps()
metrics.put(0.5)
