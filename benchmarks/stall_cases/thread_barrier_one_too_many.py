"""A barrier for three rollout threads has four parties, since main was counted; main joins them.
---
expect:
  kind: [lock, join]
  says: [generate, "join|collect"]
  never: ["(?i)network", "sleeps", "computes", "(?i)deadlock"]
"""

import threading

import _kit

start = threading.Barrier(4)


def generate(number: int) -> None:
    start.wait()
    print(number, flush=True)


def collect() -> None:
    threads = [
        threading.Thread(target=generate, args=(number,), name=f"rollout-{number}") for number in range(3)
    ]
    for one in threads:
        one.start()
    for one in threads:
        one.join()


_kit.steps()
_kit.here()
collect()
