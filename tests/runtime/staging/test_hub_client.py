"""How a node reaches the hub: proxies, certificates, redirects, and where the token may go."""

from __future__ import annotations

import base64
import select
import socket
import subprocess
import threading
from collections.abc import Iterator
from http.client import HTTPMessage
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import urlsplit
from urllib.request import Request, build_opener

import pytest

from jobspec.finding import JobspecError
from jobspec.plan import StagePlan
from jobspec.runtime.staging.hub_client import ENDPOINT, HubClient, Settings, _wait_s
from jobspec.runtime.staging.hub_files import HubFiles, list_hub, read_all
from tests.kits.hub_lab import COMMIT, HubLab
from tests.kits.programs_kit import needs

FILES = {"config.json": b"{}\n", "model.safetensors.bin": b"x" * 5000}
ITEM = StagePlan("m", "model", "x", repo_id="acme/tiny", revision=COMMIT, from_hub=True)


class Proxy:
    """A forward proxy: whole addresses for http, CONNECT for https. `seen` has what it was asked for."""

    def __init__(self) -> None:
        self.seen: list[tuple[str, str, str]] = []
        proxy = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def note(self) -> None:
                proxy.seen.append((self.command, self.path, self.headers.get("Proxy-Authorization", "")))

            def do_GET(self) -> None:
                self.note()
                headers = {
                    name: value for name, value in self.headers.items() if not name.startswith("Proxy-")
                }
                with build_opener().open(Request(self.path, headers=headers)) as answer:
                    data = answer.read()
                    self.send_response(answer.status)
                    for name in ("Content-Range", "ETag"):
                        if answer.headers[name]:
                            self.send_header(name, answer.headers[name])
                self.send_header("Content-Length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

            def do_CONNECT(self) -> None:
                self.note()
                host, _, port = self.path.partition(":")
                with socket.create_connection((host, int(port))) as far:
                    self.send_response(200)
                    self.end_headers()
                    ends = {self.connection: far, far: self.connection}
                    while True:
                        ready, _, _ = select.select(list(ends), [], [], 10)
                        for one in ready:
                            data = one.recv(65536)
                            if not data:
                                self.close_connection = True
                                return
                            ends[one].sendall(data)

            def log_message(self, *_: object) -> None:
                return

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True).start()
        self.address = f"127.0.0.1:{self._server.server_address[1]}"

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()


@pytest.fixture
def proxy() -> Iterator[Proxy]:
    made = Proxy()
    yield made
    made.close()


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, str]:
    folder = tmp_path_factory.mktemp("tls")
    names = str(folder / "cert.pem"), str(folder / "key.pem")
    words = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=hub"]
    words += ["-addext", "subjectAltName=IP:127.0.0.1", "-out", names[0], "-keyout", names[1]]
    subprocess.run(words, check=True, capture_output=True)
    return names


def fetched(lab: HubLab, **env: str) -> dict[str, bytes]:
    """Listing and files, by a client with these variables."""
    client = HubClient(Settings.of({"HF_ENDPOINT": lab.url, "HF_HUB_DOWNLOAD_TIMEOUT": "5", **env}, tries=1))
    listing = list_hub(client, ITEM)
    content = {}
    for entry in listing.files:
        stream, data = HubFiles(client).open(entry, 0), bytearray()
        buffer = bytearray(1000)
        while count := stream.readinto(buffer):
            data += buffer[:count]
        stream.close()
        content[entry.name] = bytes(data)
    return content


def test_variables_of_huggingface_hub_and_of_proxies_count() -> None:
    assert Settings.of({}).endpoint == ENDPOINT and Settings.of({}).stall_s == 30.0
    env = {"HF_ENDPOINT": "https://mirror.example/", "HF_HUB_DOWNLOAD_TIMEOUT": "7", "HF_TOKEN": " hf_x\n"}
    found = Settings.of({**env, "HTTPS_PROXY": "http://p:1", "no_proxy": "a.example"})
    assert (found.endpoint, found.stall_s, found.token) == ("https://mirror.example", 7.0, "hf_x")
    assert found.proxies == {"https": "http://p:1", "no": "a.example"}
    assert Settings.of({"HF_HUB_DOWNLOAD_TIMEOUT": "soon"}).stall_s == 30.0
    assert "hf_x" not in repr(found)


def test_proxy_is_used_but_where_no_proxy_says_so(proxy: Proxy) -> None:
    lab = HubLab({"config.json": b"{}\n"})
    try:
        env = {"http_proxy": f"http://user:p%40ss@{proxy.address}"}
        assert fetched(lab, **env) == dict(lab.files)
        assert [path for _, path, _ in proxy.seen] == [
            f"{lab.url}/api/models/acme/tiny/revision/{COMMIT}?blobs=true",
            f"{lab.url}/acme/tiny/resolve/{COMMIT}/config.json",
        ]
        assert {who for _, _, who in proxy.seen} == {f"Basic {base64.b64encode(b'user:p@ss').decode()}"}
        proxy.seen.clear()
        assert fetched(lab, **env, NO_PROXY="127.0.0.1") == dict(lab.files)
        assert proxy.seen == []
    finally:
        lab.close()


@needs("openssl")
def test_site_certificates_and_a_tunnel(proxy: Proxy, certificate: tuple[str, str]) -> None:
    lab = HubLab(FILES, tls=certificate, token="hf_right")
    try:
        env = {"SSL_CERT_FILE": certificate[0], "HF_TOKEN": "hf_right"}
        assert fetched(lab, **env) == FILES
        # The file server is no https place, so its host counts as another and sees no token.
        assert {one.token for one in lab.seen if one.server == "files"} == {""}
        assert fetched(lab, **env, https_proxy=proxy.address) == FILES
        place = urlsplit(lab.url).netloc
        assert {(verb, path) for verb, path, _ in proxy.seen} == {("CONNECT", place)}
    finally:
        lab.close()


@needs("openssl")
def test_unknown_certificate_is_told_at_once(certificate: tuple[str, str], tmp_path: Path) -> None:
    lab = HubLab(FILES, tls=certificate, token="hf_right")
    try:
        client = HubClient(Settings.of({"HF_ENDPOINT": lab.url, "HF_TOKEN": "hf_right"}))
        with pytest.raises(JobspecError) as caught:
            list_hub(client, ITEM)
        assert caught.value.findings[0].rule == "stage.hub-unreachable"
        assert "SSL_CERT_FILE" in caught.value.findings[0].fix
        assert lab.seen == []
    finally:
        lab.close()


@pytest.mark.parametrize("token", ["hf_first\nhf_second", "hf_first hf_second", "hf_first\u2026"])
def test_token_that_no_header_takes_is_told_and_not_shown(token: str) -> None:
    lab = HubLab(FILES)
    try:
        client = HubClient(Settings.of({"HF_ENDPOINT": lab.url, "HF_TOKEN": token}))
        with pytest.raises(JobspecError) as caught:
            list_hub(client, ITEM)
        (found,) = caught.value.findings
        assert (found.rule, found.what) == ("stage.hub-denied", "`HF_TOKEN` is no token")
        assert "hf_" not in found.text() and lab.seen == []
    finally:
        lab.close()


@pytest.mark.parametrize(
    "place",
    [
        "file:///etc",
        "ftp://127.0.0.1",
        "javascript:x",
        "http://127.0.0.1:99999",
        "http://[::1",
        "http://\u00e9",
    ],
)
def test_hub_that_sends_elsewhere_than_the_web_is_not_followed(place: str) -> None:
    lab = HubLab(FILES, elsewhere=place)
    try:
        client = HubClient(Settings.of({"HF_ENDPOINT": lab.url}, tries=1))
        with pytest.raises(JobspecError) as caught:
            read_all(client, f"{lab.url}/acme/tiny/resolve/{COMMIT}/model.safetensors.bin", 10)
        assert caught.value.findings[0].rule == "stage.hub-stalled"
        assert "no web address" in caught.value.findings[0].why
    finally:
        lab.close()


@pytest.mark.parametrize(
    "endpoint", ["hub.example.org", "localhost:8080", "file:///hub", "http://", "http://h:x"]
)
def test_address_without_a_scheme_or_a_host_is_not_tried(endpoint: str) -> None:
    told: list[str] = []
    client = HubClient(Settings.of({"HF_ENDPOINT": endpoint}), lambda event, data: told.append(event))
    with pytest.raises(JobspecError) as caught:
        list_hub(client, ITEM)
    assert caught.value.findings[0].rule == "stage.hub-endpoint"
    assert (client.restarts, told) == (0, [])


@pytest.mark.parametrize("after", ["\u00b2", "soon", "-5"])
def test_wait_that_is_no_number_is_as_if_the_hub_named_none(after: str) -> None:
    headers = HTTPMessage()
    headers["Retry-After"] = after
    assert _wait_s(headers) is None
