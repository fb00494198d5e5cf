"""The trainer asks an engine over HTTP, the engine's handler its tokenizer process over a pipe, and that one sleeps in a download.
---
expect: {kind: [sleep, network, pipe, queue, waits], says: ["download"], never: ["computes", "idle"]}
"""

import http.server
import multiprocessing
import time
import urllib.request

import _kit


def tokenizer(pipe) -> None:
    while True:
        pipe.send(download(pipe.recv()))


def download(text: str) -> list:
    time.sleep(1800)
    return [1]


class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.server.pipe.send(self.path)
        tokens = self.server.pipe.recv()
        self.send_response(200)
        self.end_headers()
        self.wfile.write(str(tokens).encode())

    def log_message(self, *args) -> None:
        pass


def engine(port) -> None:
    near, far = multiprocessing.get_context("fork").Pipe()
    multiprocessing.get_context("fork").Process(target=tokenizer, args=(far,)).start()
    server = http.server.HTTPServer(("127.0.0.1", 0), Handler)
    server.pipe = near
    port.value = server.server_port
    server.serve_forever()


def generate(port: int) -> bytes:
    return urllib.request.urlopen(f"http://127.0.0.1:{port}/x").read()


if __name__ == "__main__":
    context = multiprocessing.get_context("fork")
    port = context.Value("i", 0)
    context.Process(target=engine, args=(port,)).start()
    _kit.steps(5)
    _kit.here()
    generate(port.value)
