"""A registry that answers for manifests as the Docker Registry HTTP API V2 has it, with or without tokens."""

from __future__ import annotations

import json
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, urlsplit

INDEX = "application/vnd.oci.image.index.v1+json"


class FakeRegistry:
    """Knows `tags`, by `name:tag`. `token` is what it wants, `delay_s` how long it thinks."""

    def __init__(
        self, tags: dict[str, str], token: str = "", delay_s: float = 0.0, kind: str = INDEX
    ) -> None:
        self.tags, self.token, self.delay_s, self.kind = tags, token, delay_s, kind
        self.seen: list[str] = []
        self.realm = ""
        self.token_answer = b""  # in place of one with the token
        registry = self

        class Handler(BaseHTTPRequestHandler):
            def do_HEAD(self) -> None:
                registry.answer(self)

            def do_GET(self) -> None:
                registry.answer(self)

            def log_message(self, *_: object) -> None:
                return

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.host = f"127.0.0.1:{self._server.server_address[1]}"
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()

    def answer(self, request: BaseHTTPRequestHandler) -> None:
        self.seen.append(f"{request.command} {request.path}")
        time.sleep(self.delay_s)
        place = urlsplit(request.path)
        if place.path == "/token":
            asked = parse_qs(place.query)
            given = {"token": self.token} if asked["scope"][0].startswith("repository:") else {}
            self._send(request, 200, "application/json", self.token_answer or json.dumps(given).encode())
        elif self.token and request.headers.get("Authorization") != f"Bearer {self.token}":
            realm = self.realm or f"http://{self.host}/token"
            name = place.path.removeprefix("/v2/").partition("/manifests/")[0]
            challenge = f'Bearer realm="{realm}",service="registry",scope="repository:{name}:pull"'
            self._send(request, 401, "application/json", b"{}", {"WWW-Authenticate": challenge})
        else:
            name, _, tag = place.path.removeprefix("/v2/").partition("/manifests/")
            digest = self.tags.get(f"{name}:{tag}", "")
            accepted = self.kind in request.headers.get("Accept", "") or self.kind == "text/html"
            status = 200 if digest and accepted else 404
            more = {"Docker-Content-Digest": digest} if digest else {}
            self._send(request, status, self.kind, b"{}", more)

    def _send(
        self,
        request: BaseHTTPRequestHandler,
        status: int,
        kind: str,
        body: bytes,
        more: dict[str, str] | None = None,
    ) -> None:
        request.send_response(status)
        for name, value in {"Content-Type": kind, "Content-Length": str(len(body)), **(more or {})}.items():
            request.send_header(name, value)
        request.end_headers()
        if request.command == "GET":
            request.wfile.write(body)
