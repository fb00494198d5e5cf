"""The tokenizer process takes a header and then the text, each as a message; rank 0 sends both in one.
---
ranks: 2
expect:
  kind: [pipe, network]
  ranks: [0]
  says: ["tokenize|serve_tokens", all_reduce]
  never: ["sleeps", "computes", "(?i)queue", "half.?open"]
"""

import multiprocessing
import os
import tempfile
from multiprocessing.connection import Client, Listener

import _kit
import torch


def serve_tokens(listener: Listener) -> None:
    client = listener.accept()
    while True:
        header = client.recv()
        text = client.recv()
        client.send(len(text) * header["times"])


def tokenize(server, text: str) -> int:
    server.send(({"times": 1}, text))
    return server.recv()


dist = _kit.gloo()
if _kit.RANK == 0:
    listener = Listener(os.path.join(tempfile.mkdtemp(), "tokens"), "AF_UNIX")
    multiprocessing.get_context("fork").Process(target=serve_tokens, args=(listener,), daemon=True).start()
    _kit.here()
    tokenize(Client(listener.address), "a b")
dist.all_reduce(torch.ones(4))
