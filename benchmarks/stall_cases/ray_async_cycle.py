"""Two async actors of max_concurrency 1 await each other's answer.
---
ray: true
expect: {kind: [ray, ray-cycle, event-loop, waits], says: ["step|score"], never: ["computes", "sleeps", "dead"]}
"""

import _kit
import ray


@ray.remote(num_cpus=0, max_concurrency=1)
class Policy:
    async def step(self, judge) -> int:
        return await judge.score.remote(ray.get_runtime_context().current_actor)

    async def logits(self) -> int:
        return 1


@ray.remote(num_cpus=0, max_concurrency=1)
class Judge:
    async def score(self, policy) -> int:
        return await policy.logits.remote()


ray.init()
policy, judge = Policy.remote(), Judge.remote()
ray.get(policy.logits.remote())
_kit.steps()
_kit.here()
ray.get(policy.step.remote(judge))
