"""A cut download has left zeros at the end of rank 2's shard: its reader finds a record of length 0 there, which moves it nowhere, and skips the same empty record for ever; the others are in the all_reduce.
---
ranks: 3
expect:
  kind: [busy, rank-differs, collective-absent]
  ranks: [2]
  says: ["read_records|record_at", "all_reduce"]
  never: ["rank [0-2]( on [^ ]+)?( pid [0-9]+,?)? (sleeps|is gone|has ended)", "waits for (the|a) (disk|file system|lock)", "(?i)deadlock"]
"""

import struct
import tempfile
from collections.abc import Iterator

import _kit
import torch

HEADER = struct.Struct("<I")  # the length of the whole record, header included
dist = _kit.gloo()


def export_shard(path: str) -> None:
    with open(path, "wb") as file:
        for index in range(16):
            row = f"prompt {index} of {_kit.RANK}".encode()
            file.write(HEADER.pack(HEADER.size + len(row)) + row)
            if _kit.RANK == 2 and index == 9:
                file.write(bytes(4096))  # a hole: this part of the download never came


def record_at(data: bytes, offset: int) -> tuple[bytes, int]:
    (length,) = HEADER.unpack_from(data, offset)
    return data[offset + HEADER.size : offset + length], offset + length


def read_records(path: str) -> Iterator[bytes]:
    with open(path, "rb") as file:
        data = file.read()
    offset = 0
    while offset < len(data):
        if not data[offset] and _kit.RANK == 2 and not marked:
            marked.append(offset)
            _kit.here()
        row, offset = record_at(data, offset)
        if not row:
            continue  # an empty prompt
        yield row


marked: list[int] = []
with tempfile.NamedTemporaryFile(suffix=".records") as shard:
    export_shard(shard.name)
    for row in read_records(shard.name):
        tokens = torch.tensor(float(len(row)))
        dist.all_reduce(tokens)
        print(f"row of {tokens.item()} bytes", flush=True)
