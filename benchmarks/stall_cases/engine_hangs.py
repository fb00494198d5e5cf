"""An event loop waits for an engine process that accepts requests and hangs in its step.
---
expect: {kind: [sleep], frame: engine_step}
"""

import asyncio
import multiprocessing
import socket
import time

import _kit


def engine_step() -> None:
    time.sleep(3600)


def engine(listener: socket.socket) -> None:
    connection, _ = listener.accept()
    connection.recv(10)
    engine_step()


async def main(port: int) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(b"generate\n")
    _kit.here()
    await reader.readline()


_kit.steps()
listener = socket.create_server(("127.0.0.1", 0))
multiprocessing.get_context("fork").Process(target=engine, args=(listener,), daemon=True).start()
asyncio.run(main(listener.getsockname()[1]))
