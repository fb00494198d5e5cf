"""The ranks take turns at the judge by a lock in the store; rank 1's judging fails between take and give, its error is logged, and it is at the barrier with the lock taken, for which the others poll.
---
ranks: 3
expect:
  kind: [sleep, store, lock, rank-differs, collective-absent, several, waits]
  says: ["take", "barrier"]
  never: ["rank 1( on [^ ]+)?( pid [0-9]+,?)? (sleeps|is gone|computes)", "[Aa]ll ranks[^;.]* same", "(?i)is gone"]
"""

import logging
import time

import _kit

dist = _kit.gloo()
store = dist.PrefixStore("judge", dist.distributed_c10d._get_default_store())


class StoreLock:
    def __init__(self, name: str) -> None:
        self.name = name

    def take(self) -> None:
        mine = str(_kit.RANK).encode()
        while store.compare_set(self.name, "", mine.decode()) != mine:
            time.sleep(0.5)

    def give(self) -> None:
        store.delete_key(self.name)


def judge(answer: str) -> float:
    return float(answer.split("=")[1])


def judged(answer: str) -> float:
    lock = StoreLock("turn")
    lock.take()
    score = judge(answer)
    lock.give()
    return score


def evaluate() -> float:
    time.sleep(0.0 if _kit.RANK == 1 else 1.0)  # rank 1 has the shortest answers
    if _kit.RANK == 0:
        _kit.here()
    try:
        return judged("no answer" if _kit.RANK == 1 else "x=3")
    except (IndexError, ValueError) as error:
        logging.warning("no score: %s", error)
        return 0.0


evaluate()
dist.barrier()
