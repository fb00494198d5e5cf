r"""The driver waits for an async gate actor whose event nobody sets; a logger actor writes its file every five seconds, which is healthy.
---
ray: true
expect:
  kind: [event-loop, ray, lock]
  says: ['wait_open|<module>']
  never: ['behind it pid \d+ \(`ray::Logger', 'Logger.* is dead']
"""

import asyncio
import time

import _kit
import ray


@ray.remote
class Gate:
    def __init__(self):
        self.event = asyncio.Event()

    async def wait_open(self):
        await self.event.wait()


@ray.remote
class Logger:
    def write_for_ever(self):
        while True:
            time.sleep(5)
            print("rows written", flush=True)


ray.init()
_kit.steps()
gate, logger = Gate.options(num_cpus=0).remote(), Logger.options(num_cpus=0).remote()
logger.write_for_ever.remote()
time.sleep(4)
_kit.here()
opened = gate.wait_open.remote()
print(ray.get(opened))
