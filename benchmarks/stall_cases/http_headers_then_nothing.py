"""Rank 1 reads the body of a reward server's answer, of which only the headers come.
---
ranks: 3
expect:
  kind: [network, sleep]
  says: ["rank 1|serve_headers", all_reduce]
  never: ["rank [02]( on [^ ]+)?( pid [0-9]+,?)? (sleeps|has not come|does not come|is gone)", "(?i)connection refused"]
"""

import multiprocessing
import socket
import time
import urllib.request

import _kit
import torch


def serve_headers(listener: socket.socket) -> None:
    connection, _ = listener.accept()
    connection.recv(4096)
    connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 64\r\n\r\n")
    time.sleep(3600)


def read_reward(port: int) -> bytes:
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/reward") as answer:
        _kit.here()
        return answer.read()


dist = _kit.gloo()
if _kit.RANK == 1:
    listener = socket.create_server(("127.0.0.1", 0))
    port = listener.getsockname()[1]
    multiprocessing.get_context("fork").Process(target=serve_headers, args=(listener,), daemon=True).start()
    read_reward(port)
dist.all_reduce(torch.ones(4))
