"""Two writer actors report their shard by their local rank, which is 0 for both as each has a node of its own: the coordinator's set holds one shard, and committed() waits for two; the driver waits for committed().
---
ray: true
expect:
  kind: [event-loop, ray, waits]
  says: ["[Cc]oordinator|committed"]
  never: ["(?i)sleeps", "(?i)is dead|has died|was killed", "(?i)asks for (a )?resource", "computes"]
"""

import asyncio

import _kit
import ray


@ray.remote(num_cpus=0)
class Coordinator:
    def __init__(self, shards: int) -> None:
        self.shards, self.written, self.complete = shards, set(), asyncio.Event()

    async def report(self, shard: int, size: int) -> None:
        self.written.add(shard)
        if len(self.written) == self.shards:
            self.complete.set()

    async def committed(self) -> int:
        await self.complete.wait()
        return len(self.written)


@ray.remote(num_cpus=0)
class Writer:
    def __init__(self, local_rank: int, coordinator: ray.actor.ActorHandle) -> None:
        self.local_rank, self.coordinator = local_rank, coordinator

    def write(self, step: int) -> int:
        weights = bytes(1 << 16)
        ray.get(self.coordinator.report.remote(self.local_rank, len(weights)))
        return len(weights)


ray.init()
_kit.steps()
coordinator = Coordinator.remote(shards=2)
writers = [Writer.remote(local_rank=0, coordinator=coordinator) for node in range(2)]
print("written", ray.get([writer.write.remote(4) for writer in writers]), flush=True)
commit = coordinator.committed.remote()
ray.wait([commit], timeout=1)
_kit.here()
print("checkpoint of", ray.get(commit), "shards", flush=True)
