"""An async rollout actor admits only as many groups as the staleness limit allows, and groups dropped for equal rewards stay counted: it waits for the next version of the policy, the driver for another group of this one.
---
ray: true
expect:
  kind: [event-loop, sleep, ray, waits, other]
  says: ["Rollouts|generate|admit"]
  never: ["(?i)computes", "(?i)no node|resources? (that|which)", "(?i)actor[^;.]* (is dead|has died|was killed)", "(?i)each other's lock"]
"""

import asyncio

import _kit
import ray

BATCH, STALENESS = 4, 1


@ray.remote(num_cpus=0)
class Rollouts:
    def __init__(self) -> None:
        self.version = self.submitted = 0

    async def admit(self) -> None:
        while self.submitted >= (self.version + 1 + STALENESS) * BATCH:
            await asyncio.sleep(0.5)
        self.submitted += 1

    async def generate(self, prompt: int) -> list[float] | None:
        await self.admit()
        rewards = [float(prompt % 3 == 0), 0.0, 0.0]
        if len(set(rewards)) == 1:  # nothing to learn from this group
            return None
        return rewards

    async def new_version(self) -> None:
        self.version += 1


ray.init()
rollouts = Rollouts.remote()
_kit.steps()
batch, prompt = [], 0
while len(batch) < BATCH:
    prompt += 1
    group = rollouts.generate.remote(prompt)
    if prompt == 9:
        _kit.here()
    rewards = ray.get(group)
    if rewards is not None:
        batch.append(rewards)
ray.get(rollouts.new_version.remote())
