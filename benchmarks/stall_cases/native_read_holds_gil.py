"""A native reader of token shards reads a pipe without giving up the interpreter's lock: the thread that would write into the pipe cannot run.
---
expect:
  kind: [pipe, lock, waits, other, unknown]
  says: ["read_native|next_shard|feed"]
  never: ["(?i)sleeps", "(?i)computes", "network"]
"""

import ctypes
import json
import os
import threading

import _kit

native = ctypes.PyDLL(None)  # as a binding without "release the GIL"


def feed(shard: int, answer: int) -> None:
    tokens = []
    for row in range(3_000_000):
        tokens.append(json.dumps({"shard": shard, "row": row}))
    os.write(answer, tokens[-1].encode())


def read_native(source: int) -> bytes:
    buffer = ctypes.create_string_buffer(4096)
    length = native.read(source, buffer, 4096)
    return buffer.raw[:length]


def next_shard(shard: int) -> bytes:
    source, answer = os.pipe()
    threading.Thread(target=feed, args=(shard, answer), name="tokenizer", daemon=True).start()
    _kit.here()
    return read_native(source)


_kit.steps()
print(next_shard(1))
