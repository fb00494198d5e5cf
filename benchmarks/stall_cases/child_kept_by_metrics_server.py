"""Rank 1's rollout process has done its work, but the server of its metrics runs in a thread that is no daemon: the process does not end, and rank 1 joins it.
---
ranks: 3
expect:
  kind: [join, subprocess, network, lock, idle]
  ranks: [1]
  says: ["serve_forever|metrics|_shutdown|join|rollout", "all_reduce"]
  never: ["rank [02]( on [^ ]+)?( pid [0-9]+,?)? (sleeps|has not come|does not come|is gone)", "(?i)computes"]
"""

import http.server
import multiprocessing
import threading

import _kit
import torch


class Metrics(http.server.BaseHTTPRequestHandler):
    answers = 0

    def do_GET(self) -> None:
        body = f"answers_total {self.answers}\n".encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


def start_metrics() -> None:
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Metrics)
    threading.Thread(target=server.serve_forever, name="metrics").start()


def rollout(prompts: int, results: multiprocessing.SimpleQueue) -> None:
    start_metrics()
    for _ in range(prompts):
        Metrics.answers += 1
    results.put(Metrics.answers)


dist = _kit.gloo()
if _kit.RANK == 1:
    context = multiprocessing.get_context("fork")
    results = context.SimpleQueue()
    process = context.Process(target=rollout, args=(64, results), name="rollout")
    process.start()
    print(f"{results.get()} answers", flush=True)
    _kit.here()
    process.join()
dist.all_reduce(torch.ones(4))
