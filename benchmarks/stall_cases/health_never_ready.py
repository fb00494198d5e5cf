"""The trainer polls its engine's /health until it is ready; the engine answers 503 for ever, since its loader thread waits for a FIFO of weights.
---
expect:
  kind: [sleep, network, pipe, several, idle]
  says: ['wait_ready|load_weights']
  never: ['does not answer', 'is late', 'works without end']
"""

import http.server
import multiprocessing
import os
import threading
import time
import urllib.error
import urllib.request
from pathlib import Path

import _kit

FIFO = Path(os.environ["JOBSPEC_ATTEMPT_DIR"], "weights.fifo")
loaded = threading.Event()


class Health(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200 if loaded.is_set() else 503)
        self.end_headers()

    def log_message(self, *args):
        pass


def load_weights():
    FIFO.read_bytes()
    loaded.set()


def engine(pipe):
    threading.Thread(target=load_weights, name="loader", daemon=True).start()
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Health)
    pipe.send(server.server_address[1])
    server.serve_forever()


def wait_ready(port):
    while True:
        try:
            return urllib.request.urlopen(f"http://127.0.0.1:{port}/health", timeout=5)
        except urllib.error.HTTPError:
            time.sleep(1)


if __name__ == "__main__":
    _kit.steps()
    os.mkfifo(FIFO)
    ours, theirs = multiprocessing.Pipe()
    multiprocessing.get_context("fork").Process(target=engine, args=(theirs,), daemon=True).start()
    port = ours.recv()
    _kit.here()
    wait_ready(port)
