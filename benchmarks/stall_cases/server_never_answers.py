"""Rank 0 asks a server that accepts and never answers.
---
ranks: 2
expect: {kind: [network, sleep], says: ["rank 0|handle", all_reduce]}
"""

import multiprocessing
import socket
import time
import urllib.request

import _kit
import torch


def handle(listener: socket.socket) -> None:
    connection, _ = listener.accept()
    connection.recv(10)
    time.sleep(3600)


def reward(port: int) -> None:
    _kit.here()
    urllib.request.urlopen(f"http://127.0.0.1:{port}/").read()


dist = _kit.gloo()
if _kit.RANK == 0:
    listener = socket.create_server(("127.0.0.1", 0))
    multiprocessing.get_context("fork").Process(target=handle, args=(listener,), daemon=True).start()
    reward(listener.getsockname()[1])
dist.all_reduce(torch.ones(4))
