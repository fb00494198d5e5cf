"""Three scorer threads share a queue, but only one None is put at its end: one thread takes it and ends, main joins the others, which wait for rows.
---
expect:
  kind: [join, queue, lock]
  says: ["score_rows|scorer"]
  never: ["(?i)sleeps", "(?i)computes", "(?i)network", "queue[^;.]* full"]
"""

import queue
import threading

import _kit

rows: "queue.Queue[str | None]" = queue.Queue(maxsize=64)
rewards: dict[str, float] = {}


def score_rows() -> None:
    while True:
        row = rows.get()
        if row is None:
            return
        rewards[row] = row.count("a") / (len(row) or 1)


def score_round(answers: list[str]) -> float:
    scorers = [threading.Thread(target=score_rows, name=f"scorer-{number}") for number in range(3)]
    for scorer in scorers:
        scorer.start()
    for answer in answers:
        rows.put(answer)
    rows.put(None)
    _kit.here()
    for scorer in scorers:
        scorer.join()
    return sum(rewards.values())


_kit.steps()
print("reward", score_round([f"answer {number}" for number in range(20)]), flush=True)
