"""Rank 1's shard server serves one connection to its end before it accepts the next; the first worker of the data loader keeps its connection, so the second worker's request is never read, and rank 1 waits for its batch.
---
ranks: 3
expect:
  kind: [loader, network, queue, several]
  ranks: [1]
  says: ["(?i)fetch_row|__getitem__|_next|loader|serve_shards", "all_reduce"]
  never: ["rank [02]( on [^ ]+)?( pid [0-9]+,?)? (sleeps|has not come|does not come|is gone)", "(?i)refused", "(?i)computes"]
"""

import multiprocessing
import socket
import time

import _kit
import torch
from torch.utils.data import DataLoader, Dataset


def serve_shards(listener: socket.socket) -> None:
    while True:
        connection, _ = listener.accept()
        with connection, connection.makefile("rwb") as stream:
            for request in stream:
                stream.write(b"%d\n" % (int(request) * 3))
                stream.flush()


class Prompts(Dataset):
    def __init__(self, port: int) -> None:
        self.port, self.stream = port, None

    def __len__(self) -> int:
        return 64

    def fetch_row(self, index: int) -> int:
        if self.stream is None:  # one connection for each worker
            self.stream = socket.create_connection(("127.0.0.1", self.port)).makefile("rwb")
        self.stream.write(b"%d\n" % index)
        self.stream.flush()
        return int(self.stream.readline())

    def __getitem__(self, index: int) -> int:
        return self.fetch_row(index)


dist = _kit.gloo()
if _kit.RANK == 1:
    listener = socket.create_server(("127.0.0.1", 0))
    multiprocessing.get_context("fork").Process(target=serve_shards, args=(listener,), daemon=True).start()
    prompts = Prompts(listener.getsockname()[1])
    batches = iter(
        DataLoader(
            prompts, batch_size=8, num_workers=2, worker_init_fn=time.sleep, multiprocessing_context="fork"
        )
    )
    next(batches)
dist.all_reduce(torch.ones(4))
if _kit.RANK == 1:
    _kit.here()
    next(batches)
dist.all_reduce(torch.ones(4))
