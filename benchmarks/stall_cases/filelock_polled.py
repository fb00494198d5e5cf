"""Rank 0 holds the hub's FileLock and waits for a mirror; ranks 1 and 2 poll for the lock.
---
ranks: 3
expect: {kind: [network], ranks: [0], frame: fetch, says: ["(?i)lock on a file"]}
"""

import os
import socket
import time

import _kit
import filelock

dist = _kit.gloo()
path = os.environ["JOBSPEC_ATTEMPT_DIR"] + "/hub.lock"
server = socket.create_server(("127.0.0.1", 0))


def fetch():
    connection = socket.create_connection(server.getsockname())
    connection.sendall(b"GET / HTTP/1.0\r\n\r\n")
    _kit.here()
    return connection.recv(100)


def download():
    if _kit.RANK:
        time.sleep(0.5)
    with filelock.FileLock(path):
        if _kit.RANK == 0:
            fetch()


download()
