"""After a weight sync the driver makes a new server actor for the port of the old one, which it still keeps in a list: the old one holds the port, and the new one tries each second to bind it.
---
ray: true
expect:
  kind: [sleep, network, ray, waits, other]
  frame: start
  says: ["start|bind"]
  never: ["(?i)computes", "(?i)each other", "(?i)(is|has) (gone|died|dead)", "(?i)resources that"]
"""

import socket
import time

import _kit
import ray


@ray.remote(num_cpus=0)
class Server:
    def __init__(self, version: int) -> None:
        self.version = version
        self.listener = socket.socket()

    def start(self, port: int) -> int:
        while True:
            try:
                self.listener.bind(("127.0.0.1", port))
                break
            except OSError:
                time.sleep(1)
        self.listener.listen()
        return self.listener.getsockname()[1]


ray.init()
_kit.steps()
history = []
server = Server.options(name="server-v1").remote(1)
port = ray.get(server.start.remote(0))
history.append(server)

server = Server.options(name="server-v2").remote(2)
result = server.start.remote(port)
time.sleep(4)
_kit.here()
print("serving on", ray.get(result))
