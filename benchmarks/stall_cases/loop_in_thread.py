"""The engine's loop runs in a thread; the main thread waits for update_weights, which waits for an event that nobody sets.
---
ranks: 2
expect: {kind: [future, event-loop], ranks: [0], frame: update_weights, says: [all_reduce]}
"""

import asyncio
import threading

import _kit
import torch

dist = _kit.gloo()
loop = asyncio.new_event_loop()
threading.Thread(target=loop.run_forever, name="engine-loop", daemon=True).start()


class Engine:
    def __init__(self):
        self.paused = asyncio.Event()

    async def update_weights(self):
        await self.paused.wait()

    def sync(self):
        _kit.here()
        return asyncio.run_coroutine_threadsafe(self.update_weights(), loop).result()


if _kit.RANK == 0:
    Engine().sync()
dist.all_reduce(torch.ones(4))
