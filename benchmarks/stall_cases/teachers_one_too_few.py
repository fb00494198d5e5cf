"""The teachers of rank 0 meet at a multiprocessing barrier for three, as the configuration says, but only two have a checkpoint and are started: both wait there, rank 0 for their scores, rank 1 in the all_reduce.
---
ranks: 2
expect:
  kind: [lock, pipe, network, waits, other, rank-differs, collective-absent, several]
  ranks: [0]
  says: ["all_reduce", "teach|barrier|recv|wait"]
  never: ["(?i)sleeps", "(?i)computes", "(?i)is gone|killed", "rank 1( on [^ ]+)?( pid [0-9]+,?)? (has not come|does not come)"]
"""

import multiprocessing

import _kit
import torch

context = multiprocessing.get_context("fork")
TEACHERS = {"math": "qwen-math", "code": "qwen-code", "chat": None}


def teach(connection, together) -> None:
    while True:
        answers = connection.recv()
        scores = [float(len(answer)) for answer in answers]
        together.wait()  # all teachers give the batch back at once
        connection.send(scores)


def score_by_all(connections: list, answers: list[str]) -> torch.Tensor:
    for connection in connections:
        connection.send(answers)
    _kit.here()
    return torch.tensor([connection.recv() for connection in connections]).mean(0)


dist = _kit.gloo()
scores = torch.ones(4)
if _kit.RANK == 0:
    together = context.Barrier(len(TEACHERS))
    connections = []
    for name, checkpoint in TEACHERS.items():
        if checkpoint is None:
            continue
        ours, theirs = context.Pipe()
        context.Process(target=teach, args=(theirs, together), name=f"teacher-{name}", daemon=True).start()
        connections.append(ours)
    scores = score_by_all(connections, ["4", "four", "2 + 2", "5"])
dist.all_reduce(scores)
