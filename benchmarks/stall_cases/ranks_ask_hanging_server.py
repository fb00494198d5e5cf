"""All ranks ask one reward server, a child of rank 0 whose handler sleeps in a download of its model.
---
ranks: 3
expect:
  kind: [sleep, network]
  says: ["do_GET|load_model", fetch_reward]
  never: ["rank [12][^;,]* is (gone|stopped)", "computes", "(?i)queue"]
"""

import multiprocessing
import time
import urllib.request
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import _kit


def load_model() -> None:
    time.sleep(3600)


class Handler(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        load_model()


def serve(server) -> None:
    server.serve_forever()


def fetch_reward(port: int) -> bytes:
    return urllib.request.urlopen(f"http://127.0.0.1:{port}/").read()


dist = _kit.gloo()
port = [0]
if _kit.RANK == 0:
    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    port = [server.server_port]
    multiprocessing.get_context("fork").Process(target=serve, args=(server,), daemon=True).start()
dist.broadcast_object_list(port, src=0)
if _kit.RANK == 0:
    _kit.here()
fetch_reward(port[0])
dist.barrier()
