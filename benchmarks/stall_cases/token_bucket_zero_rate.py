"""The token bucket of an API client divides 30 requests a minute by 60 in integers, so it refills with nought a second: after the burst acquire() polls for ever, with its lock held.
---
expect:
  kind: [sleep, lock, future, waits]
  frame: acquire
  says: ["acquire"]
  never: ["(?i)network|socket", "(?i)computes", "(?i)each other", "(?i)is gone|killed"]
"""

import concurrent.futures
import threading
import time

import _kit


class TokenBucket:
    def __init__(self, per_minute: int, burst: int) -> None:
        self.rate = per_minute // 60
        self.burst, self.tokens = burst, float(burst)
        self.stamp, self.lock, self.told = time.monotonic(), threading.Lock(), False

    def acquire(self) -> None:
        with self.lock:
            while self.tokens < 1:
                if not self.told:
                    self.told = True
                    _kit.here()
                now = time.monotonic()
                self.tokens = min(self.burst, self.tokens + (now - self.stamp) * self.rate)
                self.stamp = now
                time.sleep(0.1)
            self.tokens -= 1


def rollout(bucket: TokenBucket, prompt: int) -> int:
    bucket.acquire()
    time.sleep(0.05)  # the request itself
    return prompt


_kit.steps()
bucket = TokenBucket(per_minute=30, burst=5)
with concurrent.futures.ThreadPoolExecutor(3, thread_name_prefix="rollout") as pool:
    futures = [pool.submit(rollout, bucket, prompt) for prompt in range(12)]
    for future in futures:
        print("rollout", future.result(), flush=True)
