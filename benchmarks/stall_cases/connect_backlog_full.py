"""A coroutine connects to a judge whose accept queue is full, as its accepting thread has died.
---
expect: {kind: [network, event-loop, waits], never: ["waits at a stream"]}
"""

import asyncio
import socket

import _kit


async def ask(address):
    reader, _ = await asyncio.open_connection(*address)
    return await reader.read()


_kit.steps()
judge = socket.socket()
judge.bind(("127.0.0.1", 0))
judge.listen(0)
address = judge.getsockname()
kept = [socket.socket() for _ in range(2)]
for one in kept:
    one.setblocking(False)
    try:
        one.connect(address)
    except BlockingIOError:
        pass
_kit.here()
asyncio.run(ask(address))
