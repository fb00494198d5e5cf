"""Rank 1 tries again for ever, and prints each time.
---
ranks: 2
expect: {kind: [sleep, other, network], ranks: [1], frame: connect, says: [all_reduce]}
"""

import socket
import time

import _kit
import torch

dist = _kit.gloo()


def connect() -> None:
    number = 0
    while True:
        number += 1
        try:
            socket.create_connection(("127.0.0.1", 9), timeout=1)
        except OSError as why:
            print(f"connection to the engine failed ({why}), retry {number}", flush=True)
            time.sleep(1)


if _kit.RANK == 1:
    _kit.here()
    connect()
dist.all_reduce(torch.ones(4))
