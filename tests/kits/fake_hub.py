"""A fake hub: the few answers of huggingface.co that huggingface_hub 2 asks for, from a dictionary of files.

Faithful in what is tested: repo info with sizes, HEAD with etag, commit and length, GET with ranges, and 429
with Retry-After, as the hub gives it to too many requests.
"""

from __future__ import annotations

import hashlib
import json
import threading
import time
from collections.abc import Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

COMMIT = "d" * 40


class FakeHub:
    """Serves one model; `refuse` requests get 429 first, and `hang` downloads send nothing."""

    def __init__(
        self, files: Mapping[str, bytes], refuse: int = 0, hang: int = 0, host: str = "127.0.0.1"
    ) -> None:
        self.files, self.refuse, self.hang = dict(files), refuse, hang
        self.sizes = {name: len(data) for name, data in files.items()}
        self.seen: list[str] = []
        hub = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                hub.answer(self, body=True)

            def do_HEAD(self) -> None:
                hub.answer(self, body=False)

            def log_message(self, *_: object) -> None:
                return

        self._server = ThreadingHTTPServer((host, 0), Handler)
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    @property
    def url(self) -> str:
        host, port = self._server.server_address[:2]
        return f"http://{host!s}:{port}"

    def close(self) -> None:
        self._server.shutdown()

    def answer(self, request: BaseHTTPRequestHandler, body: bool) -> None:
        self.seen.append(f"{request.command} {request.path}")
        if self.refuse > 0:
            self.refuse -= 1
            self._send(request, 429, b"", {"Retry-After": "0"})
        elif request.path.startswith("/api/") and "/tree/" in request.path:
            rows = [
                {"type": "file", "path": name, "size": self.sizes[name], "oid": "e" * 40}
                for name in self.files
            ]
            self._send(request, 200, json.dumps(rows).encode(), {"Content-Type": "application/json"})
        elif request.path.startswith("/api/"):
            rows = [{"rfilename": name, "size": self.sizes[name]} for name in self.files]
            info = {"id": "org/name", "sha": COMMIT, "siblings": rows, "tags": [], "private": False}
            self._send(request, 200, json.dumps(info).encode(), {"Content-Type": "application/json"})
        else:
            self._file(request, request.path.split("/resolve/")[1].split("/", 1)[1].split("?")[0], body)

    def _file(self, request: BaseHTTPRequestHandler, name: str, body: bool) -> None:
        data = self.files[name]
        etag = hashlib.sha1(b"blob %d\0" % len(data) + data).hexdigest()
        headers = {"ETag": f'"{etag}"', "X-Repo-Commit": COMMIT, "Accept-Ranges": "bytes"}
        if body and self.hang > 0:
            self.hang -= 1
            time.sleep(30)
        first = int(request.headers.get("Range", "bytes=0-").split("=")[1].split("-")[0])
        self._send(request, 206 if first else 200, data[first:] if body else b"", headers, len(data) - first)

    def _send(
        self,
        request: BaseHTTPRequestHandler,
        status: int,
        data: bytes,
        headers: Mapping[str, str],
        length: int | None = None,
    ) -> None:
        try:
            request.send_response(status)
            for key, value in headers.items():
                request.send_header(key, value)
            request.send_header("Content-Length", str(len(data) if length is None else length))
            request.end_headers()
            request.wfile.write(data)
        except OSError:
            return  # the child was killed: that is what is tested
