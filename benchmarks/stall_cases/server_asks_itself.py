"""A rollout server of one thread asks itself for the score within its answer; the trainer waits for the answer.
---
expect: {kind: [network], ranks: [0], frame: score, never: [SIGSTOP, half-open]}
"""

import json
import multiprocessing
import urllib.request
from http.server import BaseHTTPRequestHandler, HTTPServer

import _kit


def post(port: int, path: str, body: dict) -> dict:
    request = urllib.request.Request(f"http://127.0.0.1:{port}{path}", json.dumps(body).encode())
    with urllib.request.urlopen(request) as answer:
        return json.load(answer)


class Handler(BaseHTTPRequestHandler):
    def score(self, tokens: int) -> dict:
        data = json.dumps({"tokens": tokens}).encode()
        with urllib.request.urlopen(f"http://127.0.0.1:{self.server.server_port}/score", data) as answer:
            return json.load(answer)

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        answer = {"text": "x" * body["tokens"], "reward": 1.0}
        if self.path == "/generate_and_score":
            answer |= self.score(body["tokens"])
        data = json.dumps(answer).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *_: object) -> None:
        pass


if __name__ == "__main__":
    server = HTTPServer(("127.0.0.1", 0), Handler)
    multiprocessing.get_context("fork").Process(target=server.serve_forever, daemon=True).start()
    server.socket.close()
    for step in range(1, 4):
        print(f"step {step}", post(server.server_port, "/generate", {"tokens": step}), flush=True)
    _kit.here()
    post(server.server_port, "/generate_and_score", {"tokens": 4})
