"""A snapshot of the Hugging Face hub as a source of staging: its listing with hashes, its files as streams.

`transfer` and `swarm` read these streams as they read files of shared storage, so hashing, resuming, sharing
and publishing are theirs. A stream asks for a bounded range at a time, and goes on at its position when the
connection stands still or breaks. Standard library only, Python 3.9.
"""

from __future__ import annotations

import json
import os
import re
from http.client import HTTPException, HTTPResponse
from pathlib import Path
from typing import Any, Callable, List, Mapping, Optional, Sequence, Tuple, TypeVar
from urllib.parse import quote

from jobspec.finding import Finding, JobspecError, fail, warning
from jobspec.plan import StagePlan
from jobspec.runtime.base.in_time import in_time
from jobspec.runtime.base.safe_write import write_text
from jobspec.runtime.staging.chunks import CHUNK_BYTES
from jobspec.runtime.staging.faults import corrupt_at_hub
from jobspec.runtime.staging.hashing import GIT_SHA1, SHA256
from jobspec.runtime.staging.hfcache import FileEntry, Listing, is_remote, selected
from jobspec.runtime.staging.hub_client import HubClient, RefusedError
from jobspec.runtime.staging.places import repo_folder
from jobspec.runtime.staging.transfer import OpenSource, Stream, open_local

MAX_LISTING_BYTES = 64 << 20
MAX_TEXT_BYTES = 64 << 20
# One request alone: the file servers refuse an answer of 50 GB, and a range costs nothing.
SPAN_BYTES = 256 << 20
# To the hub, from all nodes together: 128 at once have made six of eight nodes hang on dead ones.
CONNECTIONS = 64
_COMMIT = re.compile(r"[0-9a-f]{40}\Z")
_HASHES = {SHA256: re.compile(r"[0-9a-f]{64}\Z"), GIT_SHA1: re.compile(r"[0-9a-f]{40}\Z")}
T = TypeVar("T")
Row = Tuple[str, int, str, str]  # name, size, algorithm, digest


def list_hub(client: HubClient, item: StagePlan, state: str = "") -> Listing:
    """The selected files of a snapshot, with the hashes that the hub gives.

    `state` is a folder for listings of commits, which never change: one that is there is not asked for again.
    Raises: JobspecError.
    """
    known = os.path.join(state, f"{repo_folder(item)}.{item.revision}.hub") if state else ""
    commit, rows = _read_known(known) if known and _COMMIT.match(item.revision) else ("", [])
    if commit != item.revision or not rows:
        commit, rows = _ask(client, item)
        if known and commit == item.revision:
            write_text(Path(known), json.dumps([commit, rows]), mode=0o600)
    kinds = "datasets/" if item.kind == "dataset" else ""
    root = f"{client.settings.endpoint}/{kinds}{quote(item.repo_id)}/resolve/{commit}"
    files = tuple(
        FileEntry(name, f"{root}/{quote(name)}", size, 0, 0o644, algorithm, digest)
        for name, size, algorithm, digest in rows
        if selected(name, item.allow, item.ignore)
    )
    refs = () if commit == item.revision else (item.revision or "main",)
    return Listing(root, files, commit, refs, repo_folder(item))


def commit_of(client: HubClient, kind: str, repo_id: str, revision: str) -> str:
    """The commit that a revision names now. Raises: JobspecError."""
    return _ask(client, StagePlan("", kind, "", repo_id=repo_id, revision=revision))[0]


def _ask(client: HubClient, item: StagePlan) -> Tuple[str, List[Row]]:
    revision = quote(item.revision or "main", safe="")
    url = f"{client.settings.endpoint}/api/{item.kind}s/{quote(item.repo_id)}/revision/{revision}?blobs=true"
    try:
        data = json.loads(read_all(client, url, MAX_LISTING_BYTES))
        commit = str(data["sha"])
        rows = sorted(_row(sibling) for sibling in data["siblings"])
        if not _COMMIT.match(commit):
            raise ValueError(f"commit {commit[:50]!r}")
        if _COMMIT.match(item.revision) and commit != item.revision:
            raise ValueError(f"commit {commit}, asked for {item.revision}")
    except (ValueError, KeyError, TypeError, AttributeError, OverflowError, RecursionError) as problem:
        fix = "look at `HF_ENDPOINT`, and at a proxy between"
        why = f"{type(problem).__name__}: {problem}"
        raise fail(
            "stage.hub-listing", f"`{url}` is no listing of a snapshot", why, fix, file=url
        ) from problem
    return commit, rows


def _row(sibling: Mapping[str, Any]) -> Row:
    """Raises: ValueError for a name or a hash that must not become a path here; KeyError, TypeError."""
    name, lfs = str(sibling["rfilename"]), sibling.get("lfs") or {}
    algorithm, digest = (SHA256, str(lfs["sha256"])) if lfs else (GIT_SHA1, str(sibling["blobId"]))
    return _checked((name, int(lfs["size"] if lfs else sibling["size"]), algorithm, digest))


def _checked(row: Row) -> Row:
    name, size, algorithm, digest = row
    name.encode("utf-8")  # half of a surrogate pair has no address
    if any(part in ("", ".", "..") for part in name.split("/")) or "\\" in name or "\0" in name:
        raise ValueError(f"a file named {name[:200]!r}")
    if size < 0 or not _HASHES[algorithm].match(digest):
        raise ValueError(f"size {size} and hash {digest[:80]!r} of `{name}`")
    return row


def _read_known(path: str) -> Tuple[str, List[Row]]:
    try:
        with open(path, encoding="utf-8") as stream:
            commit, rows = json.load(stream)
        return str(commit), [
            _checked((str(n), int(size), str(how), str(digest))) for n, size, how, digest in rows
        ]
    except (OSError, ValueError, KeyError, TypeError):
        return "", []  # none yet, or not ours: it is asked for


def read_all(client: HubClient, url: str, most: int) -> bytes:
    """A small answer as a whole. Raises: JobspecError; ValueError when it is larger than `most`."""
    with client.patience(url) as patience:
        while True:
            try:
                answer = client.get(url)
                data = answer.read(most + 1)
                if answer.length and len(data) <= most:  # a short read is no error of http.client's
                    raise ConnectionResetError("the connection was cut")
                if len(data) > most:
                    raise ValueError(f"more than {most} bytes")
                return data
            except (OSError, HTTPException, RefusedError) as problem:
                patience.failed(problem)


def asked_within(seconds: float, url: str, ask: Callable[[], T]) -> T:
    """What `ask` returns or raises, all its waits together. Raises: JobspecError after so long."""
    what, fix = f"`{url}` has not answered in full", "look at the network and the proxy, or try again"
    return in_time(seconds, ask, fail("stage.hub-stalled", what, f"after {seconds:g} s", fix, file=url))


def hub_lanes(nodes: int) -> int:
    """Connections to the hub of one node among `nodes`."""
    return max(1, min(8, CONNECTIONS // max(1, nodes)))


class HubFiles:
    """Opens files of the hub and, by `local`, all others. `sharing`: other nodes bring the other chunks."""

    def __init__(self, client: HubClient, sharing: bool = False, local: OpenSource = open_local) -> None:
        self.client = client
        self._span = CHUNK_BYTES if sharing else SPAN_BYTES
        self._local = local

    def open(self, entry: FileEntry, offset: int) -> Stream:
        return (
            _HubStream(self.client, entry, offset, self._span)
            if is_remote(entry)
            else self._local(entry, offset)
        )

    def read_text(self, entry: FileEntry) -> str:
        """Raises: OSError, ValueError; JobspecError."""
        if not is_remote(entry):
            with open(entry.path, encoding="utf-8") as stream:
                return stream.read()
        return read_all(self.client, entry.path, MAX_TEXT_BYTES).decode("utf-8")

    def findings(self) -> Sequence[Finding]:
        """What was mended on the way, so that a slow staging has its reason."""
        if not self.client.restarts:
            return ()
        what = f"{self.client.restarts} connections to the hub stood still or broke, and were made anew"
        fix = "look at the node's network when it is often; each is a line `restarted` in events.jsonl"
        return (warning("stage.hub-restarts", what, "the files are whole: every hash is right", fix),)


class _HubStream:
    """One file from `offset` on. Nothing is asked for before the first read."""

    def __init__(self, client: HubClient, entry: FileEntry, offset: int, span: int) -> None:
        self._client, self._entry, self._position, self._span = client, entry, offset, span
        self._end = offset
        self._body: Optional[HTTPResponse] = None

    def readinto(self, buffer: Any) -> int:
        """Raises: JobspecError when the hub refuses, or brings nothing in many connections."""
        if self._position >= self._entry.size:
            return 0
        with self._client.patience(self._entry.path) as patience:
            while True:
                try:
                    if self._body is None:
                        self._body = self._begin()
                    view = memoryview(buffer)[: self._end - self._position]
                    count = _read_some(self._body, view)
                    if not count:
                        raise ConnectionResetError("the connection was cut")
                    break
                except (OSError, HTTPException, RefusedError) as problem:
                    self._body = None
                    patience.failed(problem, self._position)
        self._client.moved()
        self._position += count
        if self._position == self._end:
            self._body.close()  # the connection is free for the next request
            self._body = None
        return count

    def _begin(self) -> HTTPResponse:
        size = self._entry.size
        self._end = min(size, (self._position // self._span + 1) * self._span)
        answer = self._client.get(self._entry.path, self._position, self._end - 1)
        if answer.status == 200 and self._position == 0:  # the whole file
            self._end, total = size, answer.headers.get("Content-Length", str(size))
        else:
            found = re.match(r"bytes (\d+)-(\d+)/(\d+)", answer.headers.get("Content-Range", ""))
            if found is None or (int(found[1]), int(found[2])) != (self._position, self._end - 1):
                self._client.drop()
                raise self._no_range(answer)
            total = found[3]
        if total != str(size):
            self._client.drop()
            raise JobspecError(corrupt_at_hub(self._entry, f"it has {total} bytes, its listing says {size}"))
        return answer

    def _no_range(self, answer: HTTPResponse) -> JobspecError:
        got = answer.headers.get("Content-Range", "none")
        return fail(
            "stage.hub-range",
            f"`{self._entry.path}` cannot be read from byte {self._position} on",
            f"the answer was {answer.status} with range `{got}`",
            "a proxy between does not know ranges: go round it by `NO_PROXY`, or use `stage: node_local`",
            file=self._entry.path,
        )

    def close(self) -> None:
        if self._body is not None:
            self._body = None
            self._client.drop()


def _read_some(answer: HTTPResponse, view: memoryview) -> int:
    """What has come, without waiting for a whole buffer: slow is not still. 0 at the end."""
    if answer.chunked:
        return answer.readinto(view) or 0
    return int(answer.fp.readinto1(view))
