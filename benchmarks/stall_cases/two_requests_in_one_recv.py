"""Rank 1's verifier process takes each recv() for one request; two requests of a batch arrive in one piece, so it answers the first only, and rank 1 waits for the second verdict while rank 0 is in the all_reduce of the rewards.
---
ranks: 2
expect:
  kind: [network, rank-differs, collective-absent]
  ranks: [1]
  says: ["verdicts|serve_verifier", "all_reduce"]
  never: ["rank 0( on [^ ]+)?( pid [0-9]+,?)? (sleeps|has not come|does not come|is gone)", "(?i)sleeps", "(?i)computes", "(?i)refused"]
"""

import json
import multiprocessing
import socket
import time

import _kit
import torch


def serve_verifier(connection: socket.socket) -> None:
    time.sleep(0.5)  # loads its tables
    while data := connection.recv(65536):
        request = json.loads(data.split(b"\n")[0])
        verdict = {"id": request["id"], "reward": float(request["answer"] == "42")}
        connection.sendall(json.dumps(verdict).encode() + b"\n")


class Verifier:
    def __init__(self) -> None:
        self.connection, theirs = socket.socketpair()
        context = multiprocessing.get_context("fork")
        self.process = context.Process(target=serve_verifier, args=(theirs,), name="verifier", daemon=True)
        self.process.start()
        theirs.close()
        self.lines = self.connection.makefile("rb")

    def verdicts(self, answers: list[str]) -> list[float]:
        for number, answer in enumerate(answers):
            self.connection.sendall(json.dumps({"id": number, "answer": answer}).encode() + b"\n")
        if len(answers) > 1:
            _kit.here()
        return [json.loads(self.lines.readline())["reward"] for _ in answers]


dist = _kit.gloo()
rewards = [1.0]
if _kit.RANK == 1:
    rewards = Verifier().verdicts(["42", "41"])
total = torch.tensor([sum(rewards)])
dist.all_reduce(total)
