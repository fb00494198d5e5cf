"""The second phase gets the checkpoint writer by its name with get_if_exists: it is the actor of the first phase, still in an upload to a bucket that never answers, and save() is queued behind that.
---
ray: true
expect:
  kind: [network, ray]
  says: ["CheckpointWriter|upload"]
  never: ["(?i)sleeps", "(?i)no node (has|can)", "(?i)actor[^;.]* (is|was) (dead|gone|killed)", "(?i)computes"]
"""

import http.client
import multiprocessing
import socket
import time

import _kit
import ray


def bucket(listener: socket.socket) -> None:
    """Takes every connection, and hangs behind its own storage."""
    kept = []
    while True:
        kept.append(listener.accept())


@ray.remote(num_cpus=0)
class CheckpointWriter:
    def __init__(self) -> None:
        self.saved = 0

    def upload(self, port: int, step: int) -> int:
        connection = http.client.HTTPConnection("127.0.0.1", port)
        connection.request("PUT", f"/run/step_{step}", body=bytes(1024))
        return connection.getresponse().status

    def save(self, step: int) -> int:
        self.saved = step
        return step


def writer() -> ray.actor.ActorHandle:
    return CheckpointWriter.options(name="checkpoint-writer", get_if_exists=True).remote()


listener = socket.create_server(("127.0.0.1", 0))
multiprocessing.get_context("fork").Process(target=bucket, args=(listener,), daemon=True).start()
ray.init()
first = writer()
ray.get(first.save.remote(1))
first.upload.remote(listener.getsockname()[1], 1)  # in the background; nobody looks at it again
_kit.steps()
second = writer()
result = second.save.remote(2)
time.sleep(2)
_kit.here()
ray.get(result)
