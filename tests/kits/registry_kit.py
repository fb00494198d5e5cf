"""A real registry on this machine (Debian: docker-registry), and images of a few bytes in it."""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import subprocess
import tarfile
import time
import urllib.error
import urllib.request
from base64 import b64encode
from pathlib import Path
from typing import Any

from tests.kits.sshd_kit import free_port

MANIFEST = "application/vnd.docker.distribution.manifest.v2+json"
INDEX = "application/vnd.docker.distribution.manifest.list.v2+json"
CONFIG = "application/vnd.docker.container.image.v1+json"
LAYER = "application/vnd.docker.image.rootfs.diff.tar.gzip"


class Registry:
    """Serves what is pushed to it; with `login` (user and password) to nobody else."""

    def __init__(self, folder: Path, login: tuple[str, str] | None = None) -> None:
        folder.mkdir()
        self.login = login
        self.host = f"127.0.0.1:{free_port()}"
        settings: dict[str, Any] = {
            "version": "0.1",
            "storage": {"filesystem": {"rootdirectory": str(folder / "store")}},
            "http": {"addr": self.host},
        }
        if login:
            import bcrypt  # of paramiko

            kept = bcrypt.hashpw(login[1].encode(), bcrypt.gensalt(4)).decode()
            (folder / "passwords").write_text(f"{login[0]}:{kept}\n")
            settings["auth"] = {"htpasswd": {"realm": "tests", "path": str(folder / "passwords")}}
        (folder / "config.yml").write_text(json.dumps(settings))
        self._log = folder / "log"
        with self._log.open("wb") as log:
            words = ["docker-registry", "serve", str(folder / "config.yml")]
            self._process = subprocess.Popen(words, stdout=log, stderr=log)
        deadline = time.monotonic() + 60
        while not self._answers():
            assert time.monotonic() < deadline and self._process.poll() is None, self._log.read_text()
            time.sleep(0.05)

    def stop(self) -> None:
        self._process.terminate()
        self._process.wait(timeout=60)

    def fetched(self) -> int:
        """How often a layer or a configuration was fetched."""
        return sum(
            '"GET /v2/' in line and "/blobs/sha256" in line for line in self._log.read_text().splitlines()
        )

    def push_index(self, name: str, tag: str, content: bytes) -> tuple[str, str]:
        """An image for two architectures, of which one is here: digests of the index and of ours."""
        ours = self.push(name, f"{tag}-amd64", content)
        size = len(self._call("GET", f"http://{self.host}/v2/{name}/manifests/{ours}", accept=MANIFEST)[1])
        entry = {"mediaType": MANIFEST, "digest": ours, "size": size}
        index = {
            "schemaVersion": 2,
            "mediaType": INDEX,
            "manifests": [
                {**entry, "platform": {"architecture": kind, "os": "linux"}} for kind in ("s390x", "amd64")
            ],
        }
        url = f"http://{self.host}/v2/{name}/manifests/{tag}"
        return str(
            self._call("PUT", url, json.dumps(index).encode(), INDEX)[0]["Docker-Content-Digest"]
        ), ours

    def push(self, name: str, tag: str, content: bytes) -> str:
        """An image with `content` in /content; its digest."""
        stream = io.BytesIO()
        with tarfile.open(fileobj=stream, mode="w") as archive:
            entry = tarfile.TarInfo("content")
            entry.size = len(content)
            archive.addfile(entry, io.BytesIO(content))
        return self.push_layer(name, tag, stream.getvalue())

    def push_layer(self, name: str, tag: str, layer: bytes) -> str:
        """An image of one layer, a tar archive; its digest."""
        diff = f"sha256:{hashlib.sha256(layer).hexdigest()}"
        config = {
            "architecture": "amd64",
            "os": "linux",
            "config": {},
            # Without a history this registry cannot answer a request that accepts no manifest of our kind.
            "history": [{"created": "2026-01-01T00:00:00Z", "created_by": "test"}],
            "rootfs": {"type": "layers", "diff_ids": [diff]},
        }
        manifest = {
            "schemaVersion": 2,
            "mediaType": MANIFEST,
            "config": {"mediaType": CONFIG, **self._blob(name, json.dumps(config).encode())},
            "layers": [{"mediaType": LAYER, **self._blob(name, gzip.compress(layer, 1, mtime=0))}],
        }
        url = f"http://{self.host}/v2/{name}/manifests/{tag}"
        headers, _ = self._call("PUT", url, json.dumps(manifest).encode(), MANIFEST)
        return str(headers["Docker-Content-Digest"])

    def _blob(self, name: str, data: bytes) -> dict[str, Any]:
        digest = f"sha256:{hashlib.sha256(data).hexdigest()}"
        place = self._call("POST", f"http://{self.host}/v2/{name}/blobs/uploads/")[0]["Location"]
        self._call("PUT", f"{place}{'&' if '?' in place else '?'}digest={digest}", data)
        return {"digest": digest, "size": len(data)}

    def _call(
        self,
        method: str,
        url: str,
        data: bytes = b"",
        kind: str = "application/octet-stream",
        accept: str = "*/*",
    ) -> tuple[Any, bytes]:
        headers = {"Content-Type": kind, "Accept": accept}
        request = urllib.request.Request(url, data or None, headers, method=method)
        if self.login:
            request.add_header("Authorization", f"Basic {b64encode(':'.join(self.login).encode()).decode()}")
        with urllib.request.urlopen(request, timeout=30) as answer:
            return answer.headers, answer.read()

    def _answers(self) -> bool:
        try:
            self._call("GET", f"http://{self.host}/v2/")
        except (urllib.error.URLError, ConnectionError):
            return False
        return True
