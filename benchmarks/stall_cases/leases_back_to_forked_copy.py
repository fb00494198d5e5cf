"""Episodes run in forked processes, which put the lease of their sandbox back into their own copy of a queue.Queue: in the trainer the three leases never come back, and it waits for one for the fourth episode.
---
expect:
  kind: [queue, lock]
  says: ["(?i)start_episode|leases|queue"]
  never: ["(?i)computes", "(?i)sleeps", "(?i)network", "(?i)joins"]
"""

import multiprocessing
import queue
import time

import _kit

leases: queue.Queue = queue.Queue()
for name in ("sandbox-0", "sandbox-1", "sandbox-2"):
    leases.put(name)


def run_episode(sandbox: str, prompt: int, rewards) -> None:
    try:
        time.sleep(0.3)
        rewards.put((prompt, sandbox, 1.0))
    finally:
        leases.put(sandbox)


def start_episode(prompt: int, rewards) -> multiprocessing.Process:
    if prompt == 3:
        _kit.here()
    sandbox = leases.get()
    process = multiprocessing.get_context("fork").Process(target=run_episode, args=(sandbox, prompt, rewards))
    process.start()
    return process


_kit.steps()
rewards = multiprocessing.get_context("fork").SimpleQueue()
episodes = [start_episode(prompt, rewards) for prompt in range(8)]
for episode in episodes:
    episode.join()
