"""A reward server as one would run a judge: POST /score with texts as JSON, and get a number for each.

`reward_server.yaml` runs it as a service. It needs the standard library alone, and says when it is ready by
GET /health. `$PORT` and `$JOBSPEC_SERVICE_REWARD_HOST` say where it listens.
"""

from __future__ import annotations

import json
import os
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


def digit_share(text: str) -> float:
    return sum(char.isdigit() for char in text) / max(1, len(text))


class Handler(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self._answer({"ready": True})

    def do_POST(self) -> None:
        texts = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self._answer([digit_share(text) for text in texts])

    def _answer(self, data: object) -> None:
        body = json.dumps(data).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


if __name__ == "__main__":
    place = (os.environ["JOBSPEC_SERVICE_REWARD_HOST"], int(os.environ["PORT"]))
    with ThreadingHTTPServer(place, Handler) as server:
        server.serve_forever()
