"""All three environments end in an assertion; the collector takes their sockets out of the selector and waits in select() for the last episodes, with no socket left in it.
---
expect:
  kind: [network, waits, worker-gone, idle, other, event-loop]
  says: ["collect|select"]
  never: ["(?i)sleeps", "(?i)computes", "(?i)waits for a lock", "environment (waits|sleeps|computes)"]
"""

import multiprocessing
import selectors
import socket
import time

import _kit

CONTEXT = multiprocessing.get_context("fork")


def environment(seed: int, trainer: socket.socket) -> None:
    for episode in range(4):
        time.sleep(0.1)
        if episode == 2:
            raise SystemExit(f"AssertionError: observation out of bounds, seed {seed}")
        trainer.sendall(f"{seed} {episode}\n".encode())


def collect(selector: selectors.BaseSelector, wanted: int) -> list[str]:
    episodes: list[str] = []
    while len(episodes) < wanted:
        if not selector.get_map():
            _kit.here()
        for key, _ in selector.select():
            data = key.fileobj.recv(4096)  # type: ignore[union-attr]
            if data:
                episodes += data.decode().splitlines()
            else:
                print(f"environment {key.data} has closed", flush=True)
                selector.unregister(key.fileobj)
                key.fileobj.close()  # type: ignore[union-attr]
    return episodes


_kit.steps()
selector = selectors.DefaultSelector()
for seed in range(3):
    ours, theirs = socket.socketpair()
    process = CONTEXT.Process(target=environment, args=(seed, theirs), daemon=True)
    process.start()
    theirs.close()
    selector.register(ours, selectors.EVENT_READ, seed)
print(collect(selector, wanted=12), flush=True)
