"""The trainer waits in accept() of a multiprocessing Listener for its engine, which was given the port of the last run and tries again.
---
expect: {kind: [idle, network, sleep, queue, pipe, waits], says: ["accept_engine|connect"], never: ["computes"]}
"""

import multiprocessing
import time
from multiprocessing.connection import Client, Listener

import _kit


def engine(port: int) -> None:
    while True:
        try:
            Client(("127.0.0.1", port))
        except ConnectionRefusedError:
            time.sleep(1)


def accept_engine(listener: Listener):
    return listener.accept()


if __name__ == "__main__":
    _kit.steps()
    listener = Listener(("127.0.0.1", 0))
    multiprocessing.get_context("fork").Process(target=engine, args=(9,), daemon=True).start()
    _kit.here()
    accept_engine(listener)
