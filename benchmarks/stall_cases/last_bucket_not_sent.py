"""Rank 0 sends its weights in buckets but never the last one, which is not full, and goes to the barrier; the engines, ranks 1 and 2, still receive.
---
ranks: 3
expect:
  kind: [collective-differs, collective-absent, collective-order, rank-differs, network]
  ranks: [0]
  says: ["recv|load_weights", barrier]
  never: ["rank [0-2]( on [^ ]+)?( pid [0-9]+,?)? (sleeps|computes|is gone)", "[Aa]ll ranks[^;.]* same", "rank [12][^;.]* does not receive"]
"""

import math

import _kit
import torch

dist = _kit.gloo()
BUCKET = 1 << 16
model = torch.nn.Sequential(*[torch.nn.Linear(128, 128) for _ in range(9)])


def send_weights() -> None:
    bucket, filled = torch.empty(BUCKET), 0
    for parameter in model.parameters():
        row = parameter.detach().flatten()
        while len(row):
            part, row = row[: BUCKET - filled], row[BUCKET - filled :]
            bucket[filled : filled + len(part)] = part
            filled += len(part)
            if filled == BUCKET:
                for engine in range(1, _kit.WORLD):
                    dist.send(bucket, dst=engine)
                filled = 0


def load_weights() -> None:
    buckets = math.ceil(sum(parameter.numel() for parameter in model.parameters()) / BUCKET)
    received = [torch.empty(BUCKET) for _ in range(buckets)]
    for bucket in received:
        dist.recv(bucket, src=0)
    flat = torch.cat(received)[: sum(parameter.numel() for parameter in model.parameters())]
    torch.nn.utils.vector_to_parameters(flat, model.parameters())


if _kit.RANK == 0:
    send_weights()
    _kit.here()
else:
    load_weights()
dist.barrier()
print("step 4", flush=True)
