"""An engine's scheduler evicts the longest sequence when it has no KV block left, and that one starts again from its prompt: two long sequences evict each other for ever, and the main thread waits for their answers.
---
expect:
  kind: [busy, queue, waits]
  says: ["engine|run|decode|grow|schedule"]
  never: ["(?i)sleeps", "(?i)network", "(?i)thread[^;.]* (is gone|has ended|has died)", "(?i)deadlock"]
"""

import queue
import threading

import _kit

BLOCKS, PROMPT = 10, 4


class Scheduler:
    def __init__(self, answers: queue.Queue) -> None:
        self.waiting: list[dict[str, int]] = []
        self.running: list[dict[str, int]] = []
        self.answers = answers

    def free(self) -> int:
        return BLOCKS - sum(sequence["blocks"] for sequence in self.running)

    def grow(self, sequence: dict[str, int]) -> None:
        while sequence in self.running and not self.free():
            victim = max(self.running, key=lambda other: other["blocks"])  # frees the most
            self.running.remove(victim)
            self.waiting.append(victim)
        if sequence in self.running:
            sequence["blocks"] += 1

    def decode(self, sequence: dict[str, int]) -> int:
        return sum(token * sequence["prompt"] % 7 for token in range(40_000))

    def run(self) -> None:
        while True:
            while self.waiting and self.free() >= PROMPT:
                self.running.append(self.waiting.pop(0) | {"blocks": PROMPT})
            for sequence in list(self.running):
                if sequence not in self.running:
                    continue
                self.decode(sequence)
                if sequence["blocks"] >= sequence["needs"]:
                    self.running.remove(sequence)
                    self.answers.put(sequence["prompt"])
                else:
                    self.grow(sequence)


answers: queue.Queue = queue.Queue()
scheduler = Scheduler(answers)
scheduler.waiting = [{"prompt": n, "needs": needs} for n, needs in enumerate([5, 5, 8, 8])]
_kit.steps()
threading.Thread(target=scheduler.run, name="engine", daemon=True).start()
for done in range(4):
    if done == 2:
        _kit.here()
    print("answer to prompt", answers.get(), flush=True)
