"""A reward server was written to answer three requests and then waits for its log's flush event; the fourth request is accepted by the kernel alone.
---
expect:
  kind: [network, lock, waits]
  says: ['ask|flush_log']
  never: ['the other end is pid', 'has accepted']
"""

import multiprocessing
import socket
import threading

import _kit


def flush_log():
    threading.Event().wait()


def serve(listener):
    for _ in range(3):
        link, _ = listener.accept()
        link.recv(100)
        link.sendall(b"1.0")
        link.close()
    flush_log()


def ask(address):
    with socket.create_connection(address) as link:
        link.sendall(b"answer")
        return link.recv(100)


if __name__ == "__main__":
    _kit.steps()
    listener = socket.create_server(("127.0.0.1", 0))
    address = listener.getsockname()
    multiprocessing.get_context("fork").Process(target=serve, args=(listener,), daemon=True).start()
    listener.close()
    for index in range(4):
        if index == 3:
            _kit.here()
        ask(address)
