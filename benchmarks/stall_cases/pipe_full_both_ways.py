"""A trainer sends a large batch to its tokenizer process, which at that moment sends a large answer to an earlier one: both pipes are full.
---
expect:
  kind: [pipe, network]
  says: ["send|feed", "room|full|write|send"]
  never: ["sleeps", "computes", "waits for a message"]
"""

import multiprocessing

import _kit

fork = multiprocessing.get_context("fork")


def tokenize(pipe) -> None:
    while True:
        pipe.send(pipe.recv() * 4)


def feed(pipe, batch: bytes) -> None:
    pipe.send(batch)


_kit.steps()
near, far = fork.Pipe()
fork.Process(target=tokenize, args=(far,), daemon=True).start()
far.close()
_kit.here()
for _ in range(3):
    feed(near, b"x" * 2_000_000)
print(len(near.recv()), flush=True)
