"""Rank 1 asks rank 0's rollout server, whose handler waits for rank 0's next policy: rank 0 is in an all_reduce.
---
ranks: 3
expect: {kind: [network, lock], ranks: [1], says: ["fetch_rollouts", "do_GET", all_reduce]}
"""

import http.server
import os
import threading
import time
import urllib.request

import _kit
import torch

dist = _kit.gloo()
path = os.environ["JOBSPEC_ATTEMPT_DIR"] + "/rollouts.port"
policy = threading.Event()


class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        policy.wait()


def fetch_rollouts():
    while not os.path.exists(path):
        time.sleep(0.1)
    _kit.here()
    return urllib.request.urlopen(f"http://127.0.0.1:{open(path).read()}/").read()


if _kit.RANK == 0:
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    with open(path + ".new", "w") as file:
        file.write(str(server.server_port))
    os.rename(path + ".new", path)
if _kit.RANK == 1:
    fetch_rollouts()
dist.all_reduce(torch.ones(4))
policy.set()
