"""Two actors wait for each other.
---
ray: true
expect: {kind: [ray-cycle, ray, several], says: ["call_other"]}
"""

import time

import _kit
import ray


@ray.remote(num_cpus=0)
class Side:
    def meet(self, other: "Side") -> None:
        self.other = other

    def call_other(self) -> int:
        time.sleep(1)
        return ray.get(self.other.answer.remote())

    def answer(self) -> int:
        return 1


ray.init()
_kit.steps()
one, two = Side.remote(), Side.remote()
ray.get([one.meet.remote(two), two.meet.remote(one)])
results = [one.call_other.remote(), two.call_other.remote()]
time.sleep(3)
_kit.here()
ray.get(results)
