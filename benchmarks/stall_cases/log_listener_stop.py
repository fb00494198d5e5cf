"""Rank 1 closes its logging, which joins the listener's thread; that one sends the last records to a collector process, which has stopped to read while it compacts its files.
---
ranks: 3
expect:
  kind: [join, network, sleep, lock]
  ranks: [1]
  says: ["emit|sendall|close_logging|listener|stop|collect|compact", "barrier"]
  never: ["rank [02]( on [^ ]+)?( pid [0-9]+,?)? (sleeps|has not come|does not come|is gone)", "(?i)computes"]
"""

import logging
import logging.handlers
import multiprocessing
import queue
import socket
import time

import _kit

dist = _kit.gloo()


def compact() -> None:
    time.sleep(100000)


def collect(listener: socket.socket) -> None:
    connection, _ = listener.accept()
    received = 0
    while received < 1 << 20:
        received += len(connection.recv(1 << 16))
    compact()


class CollectorHandler(logging.Handler):
    def __init__(self, port: int) -> None:
        super().__init__()
        self.socket = socket.create_connection(("127.0.0.1", port))

    def emit(self, record: logging.LogRecord) -> None:
        self.socket.sendall(self.format(record).encode() + b"\n")


def close_logging(listener: logging.handlers.QueueListener) -> None:
    listener.stop()


if _kit.RANK == 1:
    server = socket.create_server(("127.0.0.1", 0))
    multiprocessing.get_context("fork").Process(
        target=collect, args=(server,), name="collector", daemon=True
    ).start()
    records: queue.SimpleQueue[logging.LogRecord] = queue.SimpleQueue()
    listener = logging.handlers.QueueListener(records, CollectorHandler(server.getsockname()[1]))
    listener.start()
    logger = logging.getLogger("rollouts")
    logger.addHandler(logging.handlers.QueueHandler(records))
    for index in range(4000):
        logger.warning("answer %d: %s", index, "x" * 8000)
    _kit.here()
    close_logging(listener)
dist.barrier()
