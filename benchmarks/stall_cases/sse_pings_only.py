"""Rank 1 reads a judge's stream of events, in which only pings come, each well within the timeout: the verdict never does.
---
ranks: 2
expect:
  kind: [network, sleep]
  ranks: [1]
  says: ["read_verdict|stream_pings|judge", all_reduce]
  never: ["rank 0( on [^ ]+)?( pid [0-9]+,?)? (sleeps|computes|is gone)", "(?i)half.?open", "(?i)refused", "(?i)stopped by"]
"""

import http.client
import multiprocessing
import socket
import time

import _kit
import torch

HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nConnection: close\r\n\r\n"


def stream_pings(listener: socket.socket) -> None:
    while True:
        connection, _ = listener.accept()
        connection.recv(65536)
        connection.sendall(HEAD)
        while True:  # the judge's model behind it has no free slot
            connection.sendall(b": ping\n\n")
            time.sleep(1)


def read_verdict(port: int) -> float:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
    connection.request("POST", "/judge", body=b'{"answer": "42"}')
    response = connection.getresponse()
    _kit.here()
    for line in response:
        if line.startswith(b"data: "):
            return float(line[6:])
    return 0.0


dist = _kit.gloo()
reward = torch.zeros(1)
if _kit.RANK == 1:
    listener = socket.create_server(("127.0.0.1", 0))
    multiprocessing.get_context("fork").Process(
        target=stream_pings, args=(listener,), name="judge", daemon=True
    ).start()
    reward += read_verdict(listener.getsockname()[1])
dist.all_reduce(reward)
