"""The rollout client keeps a connection to its healthy engine open, and awaits a future of its batcher that nobody sets.
---
expect:
  kind: [event-loop, future]
  says: ['next_batch|<module>']
  never: ['the other end is', 'waits for the network', 'behind it pid']
"""

import asyncio
import multiprocessing

import _kit


async def serve(port):
    async def answer(reader, writer):
        while line := await reader.readline():
            writer.write(line.upper())
            await writer.drain()

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    port.send(server.sockets[0].getsockname()[1])
    await server.serve_forever()


def engine(port):
    asyncio.run(serve(port))


class Batcher:
    def __init__(self):
        self.full = asyncio.get_running_loop().create_future()

    async def next_batch(self):
        return await self.full


async def rollouts(port):
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(b"hello\n")
    await reader.readline()
    _kit.here()
    await Batcher().next_batch()


if __name__ == "__main__":
    _kit.steps()
    ours, theirs = multiprocessing.Pipe()
    multiprocessing.get_context("fork").Process(target=engine, args=(theirs,), daemon=True).start()
    asyncio.run(rollouts(ours.recv()))
