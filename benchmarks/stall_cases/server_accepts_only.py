"""Rank 1 asks a reward server on another process that accepts the connection and never reads it.
---
ranks: 3
expect:
  kind: [network, sleep]
  ranks: [1]
  says: ["post_reward", all_reduce]
  never: ["rank [02]( on [^ ]+)?( pid [0-9]+,?)? (sleeps|has not come|does not come|is gone)", "(?i)refused"]
"""

import http.client
import multiprocessing
import socket
import threading

import _kit
import torch


def accept_only(listener: socket.socket) -> None:
    kept = []
    while True:
        kept.append(listener.accept())


def post_reward(port: int) -> int:
    connection = http.client.HTTPConnection("127.0.0.1", port)
    _kit.here()
    connection.request("POST", "/reward", body=bytes(64 << 20))
    return connection.getresponse().status


dist = _kit.gloo()
if _kit.RANK == 1:
    listener = socket.create_server(("127.0.0.1", 0))
    multiprocessing.get_context("fork").Process(target=accept_only, args=(listener,), daemon=True).start()
    worker = threading.Thread(target=post_reward, args=(listener.getsockname()[1],), name="reward")
    worker.start()
    worker.join()
dist.all_reduce(torch.ones(4))
