"""Rollout threads wait for futures of a loop in another thread, whose coroutine blocks the loop in time.sleep.
---
expect: {kind: [future, sleep, waits, event-loop], says: ["score|rollout"]}
"""

import asyncio
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import _kit

loop = asyncio.new_event_loop()
threading.Thread(target=loop.run_forever, daemon=True, name="loop").start()


async def score(row):
    time.sleep(100000)


def rollout(row):
    return asyncio.run_coroutine_threadsafe(score(row), loop).result()


_kit.steps()
_kit.here()
with ThreadPoolExecutor(2) as pool:
    print(list(pool.map(rollout, range(2))))
