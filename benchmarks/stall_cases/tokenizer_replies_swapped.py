"""Two threads of rank 1 share a tokenizer's connection; one reads the other's reply and drops it, as the id is not its own, and so a reply that has long been read is waited for (by one of them or by both).
---
ranks: 3
expect:
  kind: [pipe, network, join, lock, several]
  ranks: [1]
  says: ["encode|tokenize", "all_gather"]
  never: ["rank [02]( on [^ ]+)?( pid [0-9]+,?)? (sleeps|has not come|does not come|is gone)", "(?i)refused", "(?i)rank 1[^;.]*computes"]
"""

import multiprocessing
import threading
import time
from multiprocessing.connection import Connection

import _kit


def serve_tokenizer(connection: Connection) -> None:
    while True:
        batch = [connection.recv()]
        while connection.poll(0.5):
            batch.append(connection.recv())
        for number, text in sorted(batch, key=lambda item: len(item[1])):  # short ones first
            connection.send((number, list(text.encode())))


class Tokenizer:
    def __init__(self, connection: Connection) -> None:
        self.connection, self.sending, self.receiving = connection, threading.Lock(), threading.Lock()

    def encode(self, number: int, text: str) -> list[int]:
        with self.sending:
            self.connection.send((number, text))
        while True:
            with self.receiving:
                answered, ids = self.connection.recv()
            if answered == number:
                return ids  # any other is taken for the late reply of a request that was given up


dist = _kit.gloo()
if _kit.RANK == 1:
    ours, theirs = multiprocessing.Pipe()
    multiprocessing.get_context("fork").Process(target=serve_tokenizer, args=(theirs,), daemon=True).start()
    tokenizer = Tokenizer(ours)
    prompts = threading.Thread(target=tokenizer.encode, args=(1, "a long prompt " * 50), name="prompts")
    answers = threading.Thread(target=tokenizer.encode, args=(2, "42"), name="answers")
    prompts.start()
    time.sleep(0.1)
    answers.start()
    _kit.here()
    prompts.join()
    answers.join()
lengths = [None] * _kit.WORLD
dist.all_gather_object(lengths, 700)
