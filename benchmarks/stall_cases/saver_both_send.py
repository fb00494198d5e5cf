"""Rank 0 sends its shards to the checkpoint's process and reads the receipts only at the end; each receipt holds the whole manifest, so both stand in send() on the same connection.
---
ranks: 3
expect:
  kind: [pipe, queue, network]
  ranks: [0]
  says: ["save_checkpoint|saver_loop|send", "barrier"]
  never: ["rank [12]( on [^ ]+)?( pid [0-9]+,?)? (sleeps|has not come|does not come|is gone)", "(?i)computes"]
"""

import multiprocessing
from typing import Any

import _kit

dist = _kit.gloo()


def saver_loop(pipe: Any) -> None:
    manifest: list[tuple[str, int, bytes]] = []
    while True:
        name, data = pipe.recv()
        manifest.append((name, len(data), data[:4096]))
        pipe.send(manifest)


def save_checkpoint(pipe: Any, shards: int) -> int:
    for index in range(shards):
        pipe.send((f"shard-{index}", bytes(1 << 20)))
    manifest = []
    for _ in range(shards):
        manifest = pipe.recv()
    return len(manifest)


if _kit.RANK == 0:
    context = multiprocessing.get_context("fork")
    ours, theirs = context.Pipe()
    context.Process(target=saver_loop, args=(theirs,), name="saver", daemon=True).start()
    print(save_checkpoint(ours, 4), flush=True)
dist.barrier()
if _kit.RANK == 0:
    _kit.here()
    save_checkpoint(ours, 200)
dist.barrier()
