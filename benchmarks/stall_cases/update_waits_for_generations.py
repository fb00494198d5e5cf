"""Rank 0 posts new weights to its engine, whose handler waits until no generation runs: one sleeps for its tool.
---
ranks: 2
expect:
  kind: [lock, network, sleep]
  ranks: [0]
  says: ["do_POST|call_tool", "update_weights", all_reduce]
  never: ["computes", "half.?open", "(?i)queue"]
"""

import multiprocessing
import threading
import time
import urllib.request
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import _kit
import torch

running, idle = [1], threading.Condition()


def call_tool() -> None:
    time.sleep(3600)
    with idle:
        running[0] -= 1
        idle.notify_all()


class Handler(BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        with idle:
            idle.wait_for(lambda: not running[0])
        self.send_response(200)


def serve(server) -> None:
    threading.Thread(target=call_tool, name="generation", daemon=True).start()
    server.serve_forever()


def update_weights(port: int) -> None:
    urllib.request.urlopen(f"http://127.0.0.1:{port}/", data=b"weights")


dist = _kit.gloo()
if _kit.RANK == 0:
    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    multiprocessing.get_context("fork").Process(target=serve, args=(server,), daemon=True).start()
    _kit.here()
    update_weights(server.server_port)
dist.all_reduce(torch.ones(4))
