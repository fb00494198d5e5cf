"""One of three rollouts waits for a tool server that accepts and never answers; the others have ended.
---
expect:
  kind: [event-loop, network]
  frame: ask_tool
  says: ["ask_tool|rollout"]
  never: ["(?i)sleeps", "(?i)refused", "(?i)computes"]
"""

import asyncio
import multiprocessing
import socket

import _kit


def serve(listener: socket.socket) -> None:
    kept = []
    while True:
        kept.append(listener.accept())  # and that is all


async def ask_tool(port: int) -> bytes:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(b"GET /run HTTP/1.1\r\n\r\n")
    _kit.here()
    return await reader.readline()


async def rollout(number: int, port: int) -> int:
    if number == 1:
        return len(await ask_tool(port))
    await asyncio.sleep(0.2)
    return number


async def collect(port: int) -> None:
    tasks = [asyncio.create_task(rollout(number, port)) for number in range(3)]
    for task in tasks:
        print(await task, flush=True)


_kit.steps()
listener = socket.create_server(("127.0.0.1", 0))
multiprocessing.get_context("fork").Process(target=serve, args=(listener,), daemon=True).start()
asyncio.run(collect(listener.getsockname()[1]))
