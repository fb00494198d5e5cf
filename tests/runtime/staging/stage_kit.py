"""Sources for the staging tests: real cache folders with real hashes, made in a few lines."""

from __future__ import annotations

import hashlib
import json
import os
import struct
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path

from jobspec.plan import StagePlan
from jobspec.runtime.staging import items
from jobspec.runtime.staging.hfcache import FileEntry
from jobspec.runtime.staging.transfer import Stream, open_local

COMMIT = "0123456789abcdef0123456789abcdef01234567"
NAME = "model-00002-of-00003.safetensors"  # one of `sharded()`


def safetensors(size: int, seed: int = 0) -> bytes:
    """A whole safetensors file with one tensor of `size` bytes."""
    header = json.dumps({"w": {"dtype": "U8", "shape": [size], "data_offsets": [0, size]}}).encode()
    block = hashlib.sha256(str(seed).encode()).digest()
    return struct.pack("<Q", len(header)) + header + (block * (size // 32 + 1))[:size]


def git_sha1(data: bytes) -> str:
    return hashlib.sha1(b"blob %d\0" % len(data) + data).hexdigest()


def sharded(count: int = 3, size: int = 1 << 20) -> dict[str, bytes]:
    """The files of a sharded model."""
    names = [f"model-{i + 1:05d}-of-{count:05d}.safetensors" for i in range(count)]
    index = {"weight_map": {f"layer.{i}": name for i, name in enumerate(names)}}
    files = {name: safetensors(size, i) for i, name in enumerate(names)}
    return {**files, "config.json": b"{}\n", "model.safetensors.index.json": json.dumps(index).encode()}


def hf_repo(
    folder: Path,
    files: Mapping[str, bytes],
    commit: str = COMMIT,
    refs: tuple[str, ...] = ("main",),
    org: str = "acme--tiny",
) -> Path:
    """`folder/models--<org>` holding `files` at `commit`; blobs are named as the hub names them."""
    repo = folder / f"models--{org}"
    (repo / "blobs").mkdir(parents=True, exist_ok=True)
    for name, data in files.items():
        lfs = name.endswith((".safetensors", ".bin"))
        blob = repo / "blobs" / (hashlib.sha256(data).hexdigest() if lfs else git_sha1(data))
        blob.write_bytes(data)
        link = repo / "snapshots" / commit / name
        link.parent.mkdir(parents=True, exist_ok=True)
        link.symlink_to(os.path.relpath(blob, link.parent))
    for ref in refs:
        path = repo / "refs" / ref
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(commit)
    return repo


def blob_of(repo: Path, name: str, commit: str = COMMIT) -> Path:
    return (repo / "snapshots" / commit / name).resolve()


def digest_of(blob: Path) -> str:
    """What the hub would call these bytes: git's hash, or where the name is that long their sha256."""
    data = blob.read_bytes()
    return hashlib.sha256(data).hexdigest() if len(blob.name) == 64 else git_sha1(data)


def item(source: Path, **more: object) -> StagePlan:
    fields = {"name": "model", "kind": "model", "source": str(source), "layout": "hf", **more}
    return StagePlan(**fields)  # type: ignore[arg-type]


def run(source: Path, node: Path, deadline_s: float = 60.0, **more: object) -> items.StageResult:
    """Stage one item; fields of StagePlan and arguments of `stage.run` mixed."""
    arguments = {k: more.pop(k) for k in ("stall_s", "lanes", "rehash", "open_source") if k in more}
    report = more.pop("report", lambda event, data: None)
    return items.run([item(source, **more)], str(node), report, deadline_s, **arguments)  # type: ignore[arg-type]


def content(folder: Path) -> dict[str, bytes]:
    """Every file below `folder`, links followed."""
    return {str(p.relative_to(folder)): p.read_bytes() for p in folder.rglob("*") if p.is_file()}


def rules(result: items.StageResult) -> list[str]:
    return [finding.rule for finding in result.findings]


def flip(path: Path, offset: int = -10, keep_times: bool = False) -> None:
    """Turn one bit of a file over."""
    info = path.stat()
    data = bytearray(path.read_bytes())
    data[offset] ^= 1
    path.chmod(0o600)
    path.write_bytes(data)
    if keep_times:
        os.utime(path, ns=(info.st_atime_ns, info.st_mtime_ns))
    else:
        os.utime(path, ns=(time.time_ns(), info.st_mtime_ns + 1))


class Source:
    """Opens files as the runtime does and records what was read; subclasses add a fault."""

    def __init__(self) -> None:
        self.bytes = 0
        self.opened: list[str] = []

    def __call__(self, entry: FileEntry, offset: int) -> Stream:
        self.opened.append(entry.name)
        return _Counted(self, entry, open_local(entry, offset))

    def after(self, entry: FileEntry, view: memoryview) -> None:
        """Called with the bytes of each read."""


class _Counted:
    def __init__(self, source: Source, entry: FileEntry, inner: Stream) -> None:
        self.source, self.entry, self.inner = source, entry, inner

    def readinto(self, buffer: memoryview) -> int:
        count = self.inner.readinto(buffer) or 0
        self.source.bytes += count
        self.source.after(self.entry, buffer[:count])
        return count

    def close(self) -> None:
        self.inner.close()


STAGER = """
import json, os, signal, sys
sys.path.insert(0, sys.argv[1])
from pathlib import Path
from tests.runtime.staging.stage_kit import Source, run
from jobspec.runtime.staging import transfer
transfer.CHUNK_BYTES = 64 << 10
class Killed(Source):
    def after(self, entry, view):
        if self.bytes >= int(sys.argv[4]):
            os.kill(os.getpid(), signal.SIGKILL)
source = Killed()
result = run(Path(sys.argv[2]), Path(sys.argv[3]), open_source=source, layout=sys.argv[5])
print(json.dumps([[f.rule for f in result.findings], dict(result.ready), source.bytes]))
"""


def stager(repo: Path, node: Path, kill_at: int, layout: str = "hf") -> subprocess.Popen[bytes]:
    told = [str(Path(__file__).parents[3]), str(repo), str(node), str(kill_at), layout]
    return subprocess.Popen([sys.executable, "-c", STAGER, *told], stdout=subprocess.PIPE)


def snapshot(node: Path) -> Path:
    return node / f"hf-{os.geteuid()}" / "hub" / "models--acme--tiny" / "snapshots" / COMMIT
