"""A tracker captures stdout through a pipe that a thread reads; that thread prints a warning about a line that is no JSON, into the same pipe, and about that warning again, ever longer, until it stands in a write to the full pipe which only it reads.
---
expect:
  kind: [pipe, lock, several]
  says: ["forward|capture|warn"]
  never: ["(?i)sleeps", "(?i)computes", "(?i)network|socket", "(?i)queue", "(?i)pipe[^;.]* is empty"]
"""

import json
import os
import threading
import time

import _kit


class ConsoleCapture:
    def __init__(self) -> None:
        self.console = os.dup(1)
        read, write = os.pipe()
        os.dup2(write, 1)
        os.close(write)
        self.lines = os.fdopen(read, encoding="utf-8")
        self.metrics: list[dict] = []
        threading.Thread(target=self.forward, name="capture", daemon=True).start()

    def forward(self) -> None:
        for line in self.lines:
            try:
                self.metrics.append(json.loads(line))
                os.write(self.console, line.encode())
            except json.JSONDecodeError:
                self.warn(line)

    def warn(self, line: str) -> None:
        print(f"tracker: not a metric: {line!r}", flush=True)


_kit.steps()
capture = ConsoleCapture()
for step in range(4, 8):
    print(json.dumps({"step": step, "loss": 1 / step}), flush=True)
    time.sleep(0.2)
_kit.here()
print("gradient norm is inf, the step is skipped", flush=True)
for step in range(8, 1000):
    time.sleep(0.2)
    print(json.dumps({"step": step, "loss": 1 / step}), flush=True)
