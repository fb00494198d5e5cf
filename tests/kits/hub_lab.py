"""The Hugging Face hub with its file servers, on two ports of this machine, and its faults.

Faithful in what staging asks: listings with hashes, `resolve` with the hub's own error codes, LFS files by a
redirect to a signed place of another server, ranges, rate limits. huggingface_hub itself downloads from it.
"""

from __future__ import annotations

import hashlib
import json
import ssl
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, unquote, urlsplit

COMMIT = "c0ffee" + "0" * 34
PIECE = 16 << 10


@dataclass
class Seen:
    """One request, as a server got it."""

    server: str  # hub | files
    method: str
    path: str
    range: str
    token: str
    status: int = 0


@dataclass
class HubLab:
    """Serves `files` of one repository at one commit. Faults that are numbers count down to nothing."""

    files: Mapping[str, bytes]
    repo: str = "acme/tiny"
    kind: str = "models"
    token: str = ""  # of an account that may read; empty: public
    gated: bool = False  # the token's account has not accepted the terms
    refuse: int = 0  # answers 429
    retry_after: str = "0"
    ratelimit: str = ""
    broken: int = 0  # answers 503
    stall: int = 0  # file answers that stop in the middle and stay open
    silent: int = 0  # file answers without a byte, that stay open
    cut: int = 0  # file answers that end in the middle
    expire: int = 0  # signed places that have run out
    flip: int = 0  # file answers with a wrong byte
    slow_s: float = 0.0  # pause before each piece
    drip_s: float = 0.0  # pause before each byte of other answers
    whole: bool = False  # ranges are not known
    tls: tuple[str, str] | None = None  # certificate and key of the hub itself
    elsewhere: str = ""  # where it sends for LFS files, instead of its own file server
    seen: list[Seen] = field(default_factory=list)
    sent: int = 0  # bytes of files

    def __post_init__(self) -> None:
        self.lock = threading.Lock()
        self._hub = _serve(self, "hub", self.tls)
        self._files = _serve(self, "files")

    @property
    def url(self) -> str:
        return f"{'https' if self.tls else 'http'}://127.0.0.1:{self._hub.server_address[1]}"

    @property
    def files_url(self) -> str:
        return f"http://localhost:{self._files.server_address[1]}"

    def close(self) -> None:
        for server in (self._hub, self._files):
            server.shutdown()
            server.server_close()

    def of(self, part: str) -> list[Seen]:
        """The requests whose path has `part`."""
        return [one for one in self.seen if part in one.path]

    def take(self, fault: str) -> bool:
        with self.lock:
            left = getattr(self, fault)
            setattr(self, fault, max(0, left - 1))
            return bool(left)

    def is_lfs(self, name: str) -> bool:
        return name.endswith((".safetensors", ".bin"))

    def etag(self, name: str) -> str:
        data = self.files[name]
        return hashlib.sha256(data).hexdigest() if self.is_lfs(name) else git_sha1(data)

    def listing(self) -> dict[str, object]:
        rows = []
        for name, data in self.files.items():
            row: dict[str, object] = {"rfilename": name, "size": len(data), "blobId": git_sha1(data)}
            if self.is_lfs(name):
                digest = hashlib.sha256(data).hexdigest()
                row["lfs"] = {"sha256": digest, "size": len(data), "pointerSize": 134}
            rows.append(row)
        return {"id": self.repo, "sha": COMMIT, "private": False, "tags": [], "siblings": rows}

    def tree(self) -> list[dict[str, object]]:
        """The same as huggingface_hub asks for it."""
        rows = []
        for name, data in self.files.items():
            row: dict[str, object] = {"type": "file", "path": name, "size": len(data), "oid": git_sha1(data)}
            if self.is_lfs(name):
                row["lfs"] = {"oid": self.etag(name), "size": len(data), "pointerSize": 134}
            rows.append(row)
        return rows


def git_sha1(data: bytes) -> str:
    return hashlib.sha1(b"blob %d\0" % len(data) + data).hexdigest()


def _serve(lab: HubLab, server: str, tls: tuple[str, str] | None = None) -> ThreadingHTTPServer:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            _Answer(lab, server, self).give()

        do_HEAD = do_GET  # noqa: N815 - the name that http.server asks for

        def log_message(self, *_: object) -> None:
            return

    class Server(ThreadingHTTPServer):
        daemon_threads = True

        def handle_error(self, *_: object) -> None:
            return  # a client that went away is what is tested

    made = Server(("127.0.0.1", 0), Handler)
    if tls is not None:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(*tls)
        made.socket = context.wrap_socket(made.socket, server_side=True, do_handshake_on_connect=False)
    threading.Thread(target=made.serve_forever, args=(0.02,), daemon=True).start()
    return made


class _Answer:
    def __init__(self, lab: HubLab, server: str, request: BaseHTTPRequestHandler) -> None:
        self.lab, self.request = lab, request
        place = urlsplit(request.path)
        self.path, self.query = unquote(place.path), parse_qs(place.query)
        token = request.headers.get("Authorization", "").removeprefix("Bearer ")
        self.seen = Seen(server, request.command, request.path, request.headers.get("Range", ""), token)
        lab.seen.append(self.seen)

    def give(self) -> None:
        if self.seen.server == "files":
            self._signed()
        elif self.lab.take("refuse"):
            limits = (
                {"ratelimit": self.lab.ratelimit}
                if self.lab.ratelimit
                else {"Retry-After": self.lab.retry_after}
            )
            self._send(429, b"rate limited", limits)
        elif self.lab.take("broken"):
            self._send(503, b"busy", {})
        elif self.lab.gated and self.path.startswith("/api/"):
            self._api()  # anybody may see what a gated repository holds
        elif self.lab.token and self.seen.token != self.lab.token:
            self._no(401, "GatedRepo" if self.lab.gated else "RepoNotFound", "Access is restricted.")
        elif self.lab.gated:
            self._no(403, "GatedRepo", "You are not in the authorized list.")
        elif self.path.startswith("/api/"):
            self._api()
        else:
            self._resolve()

    def _api(self) -> None:
        home = f"/api/{self.lab.kind}/{self.lab.repo}/"
        what, _, revision = self.path.removeprefix(home).partition("/")
        if not self.path.startswith(home) or what not in ("revision", "tree"):
            self._no(401, "RepoNotFound", "Repository not found")
        elif revision not in ("main", COMMIT):
            self._no(404, "RevisionNotFound", "Invalid rev id")
        else:
            data = self.lab.listing() if what == "revision" else self.lab.tree()
            self._send(200, json.dumps(data).encode(), {"Content-Type": "application/json"})

    def _resolve(self) -> None:
        prefix = "" if self.lab.kind == "models" else f"{self.lab.kind}/"
        head = f"/{prefix}{self.lab.repo}/resolve/{COMMIT}/"
        name = self.path.removeprefix(head)
        if not self.path.startswith(head) or name not in self.lab.files:
            self._no(404, "EntryNotFound", "Entry not found")
            return
        headers = {"X-Repo-Commit": COMMIT, "ETag": f'"{self.lab.etag(name)}"'}
        if self.lab.is_lfs(name):
            size = str(len(self.lab.files[name]))
            headers |= {"X-Linked-ETag": headers["ETag"], "X-Linked-Size": size}
            place = self.lab.elsewhere or self.lab.files_url
            headers["Location"] = f"{place}/{self.lab.etag(name)}?X-Signature=secret-signature"
            self._send(302, b"Found. Redirecting", headers)
        else:
            self._file(self.lab.files[name], headers)

    def _signed(self) -> None:
        found = [data for name, data in self.lab.files.items() if self.path == f"/{self.lab.etag(name)}"]
        if self.query.get("X-Signature") != ["secret-signature"] or not found or self.lab.take("expire"):
            self._send(403, b"<Error><Code>AccessDenied</Code></Error>", {})
        else:
            self._file(found[0], {"ETag": '"of-the-store"'})

    def _file(self, data: bytes, headers: Mapping[str, str]) -> None:
        first, last, status = 0, len(data) - 1, 200
        if self.seen.range and not self.lab.whole:
            a, b = self.seen.range.removeprefix("bytes=").split("-")
            first, last, status = int(a), min(int(b or last), last), 206
            if first >= len(data):
                self._send(416, b"", {})
                return
            headers = {**headers, "Content-Range": f"bytes {first}-{last}/{len(data)}"}
        body = data[first : last + 1]
        if self.seen.method == "GET" and len(body) > 1 and self.lab.take("flip"):
            body = body[:-1] + bytes([body[-1] ^ 1])
        self._send(status, body, {**headers, "Accept-Ranges": "bytes"}, is_file=True)

    def _no(self, status: int, code: str, message: str) -> None:
        self._send(status, b'{"error":"no"}', {"X-Error-Code": code, "X-Error-Message": message})

    def _send(self, status: int, body: bytes, headers: Mapping[str, str], is_file: bool = False) -> None:
        request, self.seen.status = self.request, status
        request.send_response(status)
        for key, value in headers.items():
            request.send_header(key, value)
        request.send_header("Content-Length", str(len(body)))
        request.end_headers()
        if request.command == "HEAD":
            return
        if not is_file:
            for at in range(len(body) if self.lab.drip_s else 0):
                time.sleep(self.lab.drip_s)
                request.wfile.write(body[at : at + 1])
            request.wfile.write(b"" if self.lab.drip_s else body)
            return
        stops = {fault for fault in ("stall", "cut") if len(body) > 1 and self.lab.take(fault)}
        end = len(body) // 2 if stops else len(body)
        if self.lab.take("silent"):
            stops, end = {"stall"}, 0
        for start in range(0, end, PIECE):
            time.sleep(self.lab.slow_s)
            piece = body[start : min(start + PIECE, end)]
            request.wfile.write(piece)
            with self.lab.lock:
                self.lab.sent += len(piece)
        if "stall" in stops:
            request.wfile.flush()
            request.connection.recv(1)  # until the other side gives up
        if stops:
            request.close_connection = True
