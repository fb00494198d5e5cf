"""An engine generates without end: its lines show tokens, and no step comes.
---
action: dump
expect: {kind: [busy, sleep, other, unknown], says: ["generate|decode"]}
"""

import time

import _kit


def decode() -> None:
    end = time.monotonic() + 1
    while time.monotonic() < end:
        pass


_kit.steps()
_kit.here()
while True:
    decode()
    print("Avg generation throughput: 123.4 tokens/s, Running: 1 reqs, Waiting: 0 reqs", flush=True)
