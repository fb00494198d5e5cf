"""Rank 1 reads a judge's event up to an empty line that ends in line feeds only, but the judge ends its lines with CR LF: the event has come, and the client waits on.
---
ranks: 2
expect:
  kind: [network, event-loop]
  ranks: [1]
  says: ["read_verdict|judge", all_reduce]
  never: ["(?i)sleeps", "(?i)computes", "(?i)refused", "rank 0( on [^ ]+)?( pid [0-9]+,?)? (has not come|does not come|is gone)"]
"""

import asyncio
import multiprocessing
import socket

import _kit
import torch


def serve_judge(listener: socket.socket) -> None:
    connection, _ = listener.accept()
    while connection.recv(4096):  # the connection is kept for the next request
        connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n")
        connection.sendall(b"event: verdict\r\ndata: correct\r\n\r\n")


async def read_verdict(reader: asyncio.StreamReader) -> bytes:
    event = await reader.readuntil(b"\n\n")
    return event.split(b"data: ")[1].strip()


async def judge(port: int, answer: str) -> bytes:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(f"POST /judge HTTP/1.1\r\nContent-Length: {len(answer)}\r\n\r\n{answer}".encode())
    await reader.readuntil(b"\r\n\r\n")
    _kit.here()
    return await read_verdict(reader)


dist = _kit.gloo()
if _kit.RANK == 1:
    listener = socket.create_server(("127.0.0.1", 0))
    multiprocessing.get_context("fork").Process(target=serve_judge, args=(listener,), daemon=True).start()
    asyncio.run(judge(listener.getsockname()[1], "6 * 7 = 42"))
dist.all_reduce(torch.ones(4))
