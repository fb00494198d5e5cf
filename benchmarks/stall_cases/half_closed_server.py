"""Rank 1's reward server has died, but a child of it holds the connection open: no answer, no reset.
---
ranks: 2
expect:
  kind: [network, sleep]
  ranks: [1]
  says: ["fetch_reward", all_reduce]
  never: ["rank 0( on [^ ]+)?( pid [0-9]+,?)? (sleeps|has not come|does not come|is gone)", "(?i)refused"]
"""

import multiprocessing
import os
import socket
import time
import urllib.request

import _kit
import torch


def serve(listener: socket.socket) -> None:
    connection, _ = listener.accept()
    connection.recv(4096)
    if os.fork() == 0:
        time.sleep(3600)
    os._exit(1)


def fetch_reward(port: int) -> bytes:
    _kit.here()
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/") as answer:
        return answer.read()


dist = _kit.gloo()
if _kit.RANK == 1:
    listener = socket.create_server(("127.0.0.1", 0))
    port = listener.getsockname()[1]
    multiprocessing.get_context("fork").Process(target=serve, args=(listener,), daemon=True).start()
    listener.close()
    fetch_reward(port)
dist.all_reduce(torch.ones(4))
