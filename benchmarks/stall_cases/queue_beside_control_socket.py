"""Main waits at its batch queue, as the sampler thread ended at its last prompt; a control thread reads commands from a socket.
---
expect: {kind: [queue], frame: next_batch, says: ["next_batch"], never: ["computes", "sleeps"]}
"""

import queue
import socket
import threading

import _kit

batches: queue.Queue = queue.Queue()


def sample() -> None:
    for number in range(3):
        batches.put(number)


def control(connection: socket.socket) -> None:
    while connection.recv(16):
        pass


def next_batch() -> int:
    return batches.get()


near, far = socket.socketpair()
threading.Thread(target=control, args=(near,), name="control", daemon=True).start()
threading.Thread(target=sample, name="sampler").start()
for _ in range(3):
    print(f"step {next_batch()}", flush=True)
_kit.here()
next_batch()
