"""The refresher holds the condition's lock while it waits for a server; main wants the lock, and a consumer waits on the condition.
---
expect: {kind: [lock, network], says: ["refresh"], never: ["`consumer` holds"]}
"""

import socket
import threading
import time

import _kit

changed = threading.Condition()
silent = socket.create_server(("127.0.0.1", 0))


def consume() -> None:
    with changed:
        changed.wait()


def refresh() -> None:
    with changed:
        with socket.create_connection(silent.getsockname()) as connection:
            connection.recv(1)
        changed.notify_all()


def publish() -> None:
    with changed:
        changed.notify_all()


_kit.steps()
threading.Thread(target=consume, name="consumer", daemon=True).start()
time.sleep(0.5)
threading.Thread(target=refresh, name="refresher", daemon=True).start()
time.sleep(0.5)
_kit.here()
publish()
