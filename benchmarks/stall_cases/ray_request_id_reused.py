"""Two rollout actors count their requests from nought each: in the engine the second request of that id takes the place of the first, whose future nobody sets.
---
ray: true
expect:
  kind: [event-loop, future, ray]
  says: ["generate|roll_out|Engine"]
  never: ["(?i)sleeps", "(?i)computes", "network", "(?i)actor[^.;]* (died|is dead|is gone)"]
"""

import asyncio

import _kit
import ray


@ray.remote(num_cpus=0)
class Engine:
    def __init__(self) -> None:
        self.waiting: dict[str, asyncio.Future[str]] = {}
        self.arrived: asyncio.Queue[str] = asyncio.Queue()
        self.loop: asyncio.Task[None] | None = None

    async def generate(self, request_id: str, prompt: str) -> str:
        self.loop = self.loop or asyncio.create_task(self.step_loop())
        answer = self.waiting[request_id] = asyncio.get_running_loop().create_future()
        self.arrived.put_nowait(request_id)
        return await answer

    async def step_loop(self) -> None:
        while True:
            request_id = await self.arrived.get()
            await asyncio.sleep(2)  # a batch of tokens
            answer = self.waiting.pop(request_id, None)
            if answer is not None:
                answer.set_result("42")


@ray.remote(num_cpus=0)
class Rollout:
    def __init__(self, engine: ray.actor.ActorHandle) -> None:
        self.engine, self.requests = engine, 0

    def roll_out(self, prompt: str) -> str:
        request_id = f"request-{self.requests}"
        self.requests += 1
        return ray.get(self.engine.generate.remote(request_id, prompt))

    def ready(self) -> bool:
        return True


ray.init()
_kit.steps()
engine = Engine.remote()
rollouts = [Rollout.remote(engine) for _ in range(2)]
ray.get([rollout.ready.remote() for rollout in rollouts])
answers = [rollout.roll_out.remote("6 * 7 = ?") for rollout in rollouts]
_kit.here()
print(ray.get(answers))
