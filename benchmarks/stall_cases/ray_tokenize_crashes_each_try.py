"""The tokenizer's native code crashes at one document of a shard; the task has max_retries=-1, so Ray starts it again after each crash, and the driver waits for its tokens for ever.
---
ray: true
expect:
  kind: [ray, worker-gone, waits, sleep, busy, other]
  says: ["tokenize_shard"]
  never: ["(?i)resources? that (do|does) not exist", "(?i)placement group", "(?i)deadlock"]
"""

import os
import signal
import time

import _kit
import ray


@ray.remote(num_cpus=1, max_retries=-1)  # spot nodes go away now and then
def tokenize_shard(texts: list[str]) -> int:
    time.sleep(0.5)  # reads the vocabulary
    tokens = 0
    for text in texts:
        if "\0" in text:
            os.kill(os.getpid(), signal.SIGSEGV)  # what the native library does
        tokens += len(text.split())
    return tokens


ray.init()
_kit.steps()
shards = [["what is two and two"] * 8, ["name a prime", "a broken \0 page"], ["prove it"] * 8]
counts = [tokenize_shard.remote(shard) for shard in shards]
print("tokens", ray.get(counts[0]), ray.get(counts[2]), flush=True)
time.sleep(3)
_kit.here()
print("tokens", ray.get(counts[1]))
