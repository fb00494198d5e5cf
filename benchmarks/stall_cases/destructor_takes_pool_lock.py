"""A pool of sandbox sessions drops its oldest one under its lock; that was the last reference, so its destructor runs there and then, and asks for the same lock to give its slot back.
---
expect:
  kind: [lock, join]
  frame: give_back
  says: ["give_back|__del__|evict"]
  never: ["(?i)computes", "(?i)network", "(?i)sleeps", "(?i)queue", "(?i)is gone|killed"]
"""

import collections
import threading

import _kit


class Session:
    def __init__(self, pool: "SessionPool", slot: int) -> None:
        self.pool, self.slot = pool, slot

    def __del__(self) -> None:
        self.pool.give_back(self.slot)


class SessionPool:
    def __init__(self, slots: int) -> None:
        self.lock = threading.Lock()
        self.free = list(range(slots))
        self.sessions: collections.OrderedDict[str, Session] = collections.OrderedDict()

    def give_back(self, slot: int) -> None:
        with self.lock:
            self.free.append(slot)

    def evict_oldest(self) -> None:
        with self.lock:
            _kit.here()
            self.sessions.popitem(last=False)

    def session(self, episode: str) -> int:
        if not self.free:
            self.evict_oldest()
        with self.lock:
            slot = self.free.pop()
            self.sessions[episode] = Session(self, slot)
        return slot


def run_episodes(pool: SessionPool) -> None:
    for number in range(8):
        print(f"episode {number} in slot {pool.session(f'episode-{number}')}", flush=True)


_kit.steps()
thread = threading.Thread(target=run_episodes, args=(SessionPool(4),), name="rollout")
thread.start()
thread.join()
