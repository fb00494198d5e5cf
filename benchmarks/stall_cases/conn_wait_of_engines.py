"""A router waits in multiprocessing.connection.wait for the first of two engines; both wait for a prompt.
---
expect:
  kind: [pipe, other, network]
  says: [route, serve]
  never: ["sleeps", "computes", "full"]
"""

import multiprocessing
from multiprocessing.connection import wait

import _kit

fork = multiprocessing.get_context("fork")


def serve(pipe) -> None:
    while True:
        pipe.send(pipe.recv()[::-1])


def route(pipes: list) -> str:
    return wait(pipes)[0].recv()


_kit.steps()
pipes = []
for _ in range(2):
    near, far = fork.Pipe()
    fork.Process(target=serve, args=(far,), daemon=True).start()
    far.close()
    pipes.append(near)
pipes[0].send("ab")
print(route(pipes), flush=True)
_kit.here()
print(route(pipes), flush=True)
