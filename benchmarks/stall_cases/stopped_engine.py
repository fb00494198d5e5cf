"""An engine process gets SIGSTOP while its client waits for an answer.
---
act: stop
expect: {kind: [stopped], says: [is stopped]}
"""

import multiprocessing
import socket
import time

import _kit


def engine(listener: socket.socket) -> None:
    connection, _ = listener.accept()
    while connection.recv(10):
        time.sleep(0.05)
        connection.send(b"token\n")


_kit.steps()
listener = socket.create_server(("127.0.0.1", 0))
process = multiprocessing.get_context("fork").Process(target=engine, args=(listener,), daemon=True)
process.start()
client = socket.create_connection(("127.0.0.1", listener.getsockname()[1]))
_kit.here(process.pid)
while True:
    client.send(b"next\n")
    client.recv(10)
