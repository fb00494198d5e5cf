"""The setup hook of Ray's workers asks a license server, which accepts and never answers: no worker gets to a task, and the driver waits for the first score.
---
ray: true
expect:
  kind: [network, ray]
  says: ["check_license"]
  never: ["(?i)sleeps", "(?i)computes", "(?i)no (such )?(node|resource)"]
"""

import os
import socket
import threading

import _kit
import ray


def check_license() -> None:
    with socket.create_connection(("127.0.0.1", int(os.environ["LICENSE_PORT"]))) as server:
        server.sendall(b"checkout simulator 1\n")
        server.recv(64)


def accept_only(listener: socket.socket) -> None:
    kept = []
    while True:
        kept.append(listener.accept())


@ray.remote(num_cpus=0)
def score(answer: str) -> float:
    return float("42" in answer)


listener = socket.create_server(("127.0.0.1", 0))
threading.Thread(target=accept_only, args=(listener,), name="license-server", daemon=True).start()
environment = {"LICENSE_PORT": str(listener.getsockname()[1])}
ray.init(runtime_env={"env_vars": environment, "worker_process_setup_hook": check_license})
_kit.steps()
result = score.remote("42")
_kit.here()
print(ray.get(result))
