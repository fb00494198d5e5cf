"""All ranks connect to a reward service again and again; nobody has started it.
---
ranks: 3
expect:
  kind: [sleep, network]
  ranks: []
  says: [connect]
  never: ["computes", "(?i)queue", "rank [0-2] on"]
"""

import socket
import time

import _kit

dist = _kit.gloo()
port = [0]
with socket.create_server(("127.0.0.1", 0)) as server:
    port = [server.getsockname()[1]]
dist.broadcast_object_list(port, src=0)


def connect() -> socket.socket:
    while True:
        try:
            return socket.create_connection(("127.0.0.1", port[0]))
        except OSError:
            time.sleep(2)


if _kit.RANK == 0:
    _kit.here()
connect()
dist.barrier()
