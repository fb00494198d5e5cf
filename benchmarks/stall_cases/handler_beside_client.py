"""A trainer's thread serves weights per connection and sleeps in a handler; its main thread asks the engine, which waits for those weights.
---
expect: {kind: [network, sleep, waits, pipe, lock], says: ["ask|fetch|serve"], never: ["each waits for the other"]}
"""

import multiprocessing as mp
import socket
import threading
import time

import _kit


def serve(listener):
    while True:
        connection, _ = listener.accept()
        threading.Thread(target=answer, args=(connection,), daemon=True).start()


def answer(connection):
    connection.recv(10)
    time.sleep(100000)
    connection.sendall(b"weights")


def engine(port, mine):
    server, _ = mine.accept()
    server.recv(10)
    link = socket.create_connection(("127.0.0.1", port))
    link.sendall(b"fetch")
    server.sendall(link.recv(10))


if __name__ == "__main__":
    _kit.steps()
    weights, engines = socket.create_server(("127.0.0.1", 0)), socket.create_server(("127.0.0.1", 0))
    ctx = mp.get_context("fork")
    ctx.Process(target=engine, args=(weights.getsockname()[1], engines), daemon=True).start()
    threading.Thread(target=serve, args=(weights,), daemon=True).start()
    link = socket.create_connection(engines.getsockname())
    link.sendall(b"ask")
    _kit.here()
    link.recv(10)
