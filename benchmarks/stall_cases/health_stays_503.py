"""Rank 1 polls /health of its engine, which answers 503 for ever, as the engine's loading thread has died of a missing file; the others reduce.
---
ranks: 3
expect:
  kind: [sleep, network, waits, rank-differs, collective-absent, other]
  ranks: [1]
  says: ["wait_until_healthy|health", "all_reduce"]
  never: ["(?i)refused", "rank [02]( on [^ ]+)?( pid [0-9]+,?)? (sleeps|has not come|does not come|is gone)", "rank 1( on [^ ]+)?( pid [0-9]+,?)? is gone"]
"""

import http.client
import http.server
import multiprocessing
import threading
import time

import _kit
import torch

loaded = threading.Event()


class Engine(http.server.BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.send_response(200 if loaded.is_set() else 503)
        self.end_headers()

    def log_message(self, *_):
        pass


def load_weights(path: str) -> None:
    open(path, "rb").read()
    loaded.set()


def serve(sender) -> None:
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Engine)
    sender.send(server.server_port)
    threading.Thread(
        target=load_weights, args=("/tmp/policy-step-0003/model.safetensors",), name="loader"
    ).start()
    server.serve_forever()


def wait_until_healthy(port: int) -> None:
    tries = 0
    while True:
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=5)
        connection.request("GET", "/health")
        if connection.getresponse().status == 200:
            return
        connection.close()
        tries += 1
        if tries == 3:
            _kit.here()
        time.sleep(1)


dist = _kit.gloo()
if _kit.RANK == 1:
    receiver, sender = multiprocessing.Pipe()
    multiprocessing.get_context("fork").Process(target=serve, args=(sender,), daemon=True).start()
    wait_until_healthy(receiver.recv())
dist.all_reduce(torch.ones(4))
