"""Four rollouts ask for the score of the same answer; the first computes it for all and fails, so the other three wait for a future that nobody sets.
---
expect:
  kind: [future, lock]
  says: ["score_once"]
  never: ["(?i)sleeps", "(?i)computes", "network", "(?i)pool[^.;]* (is )?full"]
"""

import concurrent.futures
import threading
import time

import _kit

flights: dict[str, concurrent.futures.Future[float]] = {}
flights_lock = threading.Lock()


def judge(answer: str) -> float:
    time.sleep(1)
    return float(answer.rsplit("=", 1)[1])


def score_once(answer: str) -> float:
    with flights_lock:
        flight = flights.get(answer)
        leads = flight is None
        if leads:
            flight = flights[answer] = concurrent.futures.Future()
    if leads:
        flight.set_result(judge(answer))
    return flight.result()


def score_all(answers: list[str]) -> int:
    with concurrent.futures.ThreadPoolExecutor(4, thread_name_prefix="scorer") as pool:
        scores = [pool.submit(score_once, answer) for answer in answers]
        done, _ = concurrent.futures.wait(scores)
        return sum(score.exception() is None for score in done)


_kit.steps()
score_all(["6 * 7 = 42"] * 4)
_kit.here()
print(score_all(["6 * 7 = many"] * 4))
