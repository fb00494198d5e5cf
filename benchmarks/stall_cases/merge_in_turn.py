"""The trainer takes answers from its two engines in turn, but prompts go to engines by their prefix: all first ones go to engine 0, whose queues are full, so the dispatcher stands in put() and never comes to a prompt for engine 1.
---
expect:
  kind: [queue, several, waits, lock]
  says: ["dispatch|collect_in_turn|serve", "put|get|queue"]
  never: ["(?i)sleeps", "(?i)computes", "(?i)network", "thread[^;.]* (is gone|has ended|has died)"]
"""

import queue
import threading

import _kit


def dispatch(prompts: list[str], inboxes: list[queue.Queue]) -> None:
    for prompt in prompts:  # the same prefix to the same engine, for its prefix cache
        inboxes[0 if prompt.startswith("Prove") else 1].put(prompt)


def serve(inbox: queue.Queue, outbox: queue.Queue) -> None:
    while True:
        prompt = inbox.get()
        outbox.put(prompt + " ... done")


def collect_in_turn(outboxes: list[queue.Queue], count: int) -> list[str]:
    answers = []
    for index in range(count):
        if index == 1:
            _kit.here()
        answers.append(outboxes[index % len(outboxes)].get())
    return answers


prompts = [f"Prove lemma {n}" for n in range(10)] + [f"Compute {n} + {n}" for n in range(10)]
inboxes = [queue.Queue(maxsize=2) for _ in range(2)]
outboxes = [queue.Queue(maxsize=2) for _ in range(2)]
_kit.steps()
for n in range(2):
    threading.Thread(target=serve, args=(inboxes[n], outboxes[n]), name=f"engine-{n}", daemon=True).start()
threading.Thread(target=dispatch, args=(prompts, inboxes), name="dispatcher", daemon=True).start()
print(len(collect_in_turn(outboxes, len(prompts))))
