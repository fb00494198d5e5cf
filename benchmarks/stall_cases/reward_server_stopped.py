"""Rank 0 asks a reward server that has been stopped by SIGSTOP after its first answer.
---
ranks: 2
expect:
  kind: [stopped, network]
  says: ["(?i)stopped|SIGSTOP|state T"]
  never: ["rank 1( on [^ ]+)?( pid [0-9]+,?)? (sleeps|has not come|does not come|is gone)",
          "rank [01] (is|was|has been) stopped"]
"""

import http.server
import multiprocessing
import os
import signal
import urllib.request

import _kit
import torch


class Rewards(http.server.BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.send_response(200)
        self.send_header("Content-Length", "3")
        self.end_headers()
        self.wfile.write(b"0.5")


def ask(port: int) -> float:
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/") as answer:
        return float(answer.read())


dist = _kit.gloo()
if _kit.RANK == 0:
    server = http.server.HTTPServer(("127.0.0.1", 0), Rewards)
    process = multiprocessing.get_context("fork").Process(
        target=server.serve_forever, name="rewards", daemon=True
    )
    process.start()
    print(ask(server.server_port))
    os.kill(process.pid, signal.SIGSTOP)
    _kit.here()
    ask(server.server_port)
dist.all_reduce(torch.ones(4))
