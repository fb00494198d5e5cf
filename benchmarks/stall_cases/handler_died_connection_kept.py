"""The handler thread of rank 1's reward server dies of a rubric that it does not know, but the server keeps the connection in a table: rank 1 waits for the answer.
---
ranks: 2
expect:
  kind: [network, idle, other, worker-gone]
  ranks: [1]
  says: ["ask_reward|serve_rewards|recv|accept", all_reduce]
  never: ["rank [01]( on [^ ]+)?( pid [0-9]+,?)? (sleeps|computes|is gone)", "(?i)half.?open", "(?i)refused", "(?i)SIGSTOP"]
"""

import multiprocessing
import threading
from multiprocessing.connection import Client, Connection, Listener

import _kit
import torch

RUBRICS = {"math": lambda answer: float("42" in answer), "length": lambda answer: min(len(answer) / 100, 1.0)}
connections: dict[str, Connection] = {}


def handle(name: str) -> None:
    while True:
        rubric, answer = connections[name].recv()
        connections[name].send(RUBRICS[rubric](answer))


def serve_rewards(listener: Listener) -> None:
    while True:
        name = f"client-{len(connections)}"
        connections[name] = listener.accept()
        threading.Thread(target=handle, args=(name,), name=name, daemon=True).start()


def ask_reward(server: Connection, rubric: str, answer: str) -> float:
    server.send((rubric, answer))
    return server.recv()


dist = _kit.gloo()
reward = torch.zeros(1)
if _kit.RANK == 1:
    listener = Listener(("127.0.0.1", 0))
    multiprocessing.get_context("fork").Process(target=serve_rewards, args=(listener,), daemon=True).start()
    server = Client(listener.address)
    reward += ask_reward(server, "math", "it is 42")
    _kit.here()
    reward += ask_reward(server, "safety", "it is 42")
dist.all_reduce(reward)
