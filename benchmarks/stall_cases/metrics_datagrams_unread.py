"""Rank 2 sends its metrics as datagrams to the Unix socket of an agent, which tries an upload for ever and reads no more: its queue is full, and send() waits.
---
ranks: 3
expect:
  kind: [network, sleep]
  ranks: [2]
  says: ["emit|upload|run_agent", all_reduce]
  never: ["rank [01]( on [^ ]+)?( pid [0-9]+,?)? (sleeps|has not come|does not come|is gone)", "(?i)computes"]
"""

import multiprocessing
import os
import socket
import time

import _kit
import torch


def upload(lines: list[bytes]) -> None:
    while True:
        try:
            socket.create_connection(("127.0.0.1", 9), timeout=5).sendall(b"".join(lines))
            return
        except OSError:
            time.sleep(30)


def run_agent(source: socket.socket) -> None:
    lines = []
    while True:
        lines.append(source.recv(4096))
        if len(lines) == 50:
            upload(lines)
            lines.clear()


def emit(agent: socket.socket, name: str, value: float) -> None:
    agent.send(f"{name}:{value}|g\n".encode())


dist = _kit.gloo()
if _kit.RANK == 2:
    path = os.path.join(os.environ["JOBSPEC_ATTEMPT_DIR"], "metrics.sock")
    source = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    source.bind(path)
    multiprocessing.get_context("fork").Process(target=run_agent, args=(source,), daemon=True).start()
    agent = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    agent.connect(path)
    _kit.here()
    for row in range(4096):  # one for each answer of the batch
        emit(agent, f"reward.{row}", 1.0)
dist.all_reduce(torch.ones(4))
