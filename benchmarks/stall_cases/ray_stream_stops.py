"""A driver iterates over the stream of a rollout task, which waits for an event: the thread that sets it has died.
---
ray: true
expect:
  kind: [ray, lock]
  frame: next_turn
  says: [rollout]
  never: ["(?i)actor (is dead|was killed|has died)", "(?i)asks for more CPUs"]
"""

from collections.abc import Iterator

import _kit
import ray

ray.init(log_to_driver=False)


@ray.remote(num_returns="streaming")
def rollout(turns: int) -> Iterator[str]:
    import threading

    answers: dict[int, str] = {}

    def environment(turn: int, arrived: threading.Event) -> None:
        answers[turn] = ["look", "open door", "take key"][turn]  # a fourth turn is an IndexError
        arrived.set()

    def next_turn(turn: int) -> str:
        arrived = threading.Event()
        threading.Thread(target=environment, args=(turn, arrived), daemon=True).start()
        arrived.wait()
        return answers[turn]

    for turn in range(turns):
        yield next_turn(turn)


def collect() -> None:
    for step, turn in enumerate(rollout.remote(8), 1):
        print(f"step {step}", ray.get(turn), flush=True)
        if step == 3:
            _kit.here()


collect()
