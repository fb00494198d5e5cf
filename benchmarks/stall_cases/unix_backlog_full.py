"""The accepting thread of rank 1's episode collector has died of a lone surrogate, but its process lives: the backlog of the Unix socket fills, and rank 1 waits in connect() to report the next episode.
---
ranks: 3
expect:
  kind: [network, waits, other, rank-differs, collective-absent, sleep]
  ranks: [1]
  says: ["report|connect", "all_reduce"]
  never: ["(?i)refused", "rank [02]( on [^ ]+)?( pid [0-9]+,?)? (sleeps|has not come|does not come|is gone)", "rank 1( on [^ ]+)?( pid [0-9]+,?)? is gone", "(?i)half.open"]
"""

import json
import multiprocessing
import os
import socket
import tempfile
import threading
import time

import _kit
import torch

PATH = os.path.join(tempfile.mkdtemp(), "episodes.sock")


def accept_episodes(listener: socket.socket, rows: list[bytes]) -> None:
    while True:
        connection, _ = listener.accept()
        with connection:
            episode = json.loads(connection.makefile("rb").readline())
            rows.append(episode["answer"].encode())


def collector(ready) -> None:
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(PATH)
    listener.listen(2)
    rows: list[bytes] = []
    threading.Thread(target=accept_episodes, args=(listener, rows), name="acceptor", daemon=True).start()
    ready.set()
    while True:
        time.sleep(30)
        print(f"{len(rows)} episodes", flush=True)


def report(episode: dict) -> None:
    with socket.socket(socket.AF_UNIX) as client:
        if episode["number"] == 8:
            _kit.here()
        client.connect(PATH)
        client.sendall(json.dumps(episode).encode() + b"\n")


dist = _kit.gloo()
if _kit.RANK == 1:
    context = multiprocessing.get_context("fork")
    ready = context.Event()
    context.Process(target=collector, args=(ready,), name="collector", daemon=True).start()
    ready.wait()
    for number in range(1, 13):
        report({"number": number, "answer": "ok" if number != 5 else "cut \ud83d"})
        time.sleep(0.1)
dist.all_reduce(torch.ones(4))
