"""Which image a tag names now: the registry's own answer, by the Docker Registry HTTP API V2.

Only names are asked for, without a login and within a deadline. Source of the protocol: the OCI Distribution
Specification, "Pulling manifests", and the Docker Registry token authentication specification.
"""

from __future__ import annotations

import json
import re
import time
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING
from urllib.parse import urlencode, urlsplit

from jobspec.runtime.base.in_time import in_time

if TYPE_CHECKING:
    from email.message import Message

DEADLINE_S = 5.0
MAX_TOKEN_BYTES = 1024**2
MANIFESTS = (
    "application/vnd.oci.image.index.v1+json",
    "application/vnd.docker.distribution.manifest.list.v2+json",
    "application/vnd.oci.image.manifest.v1+json",
    "application/vnd.docker.distribution.manifest.v2+json",
)
_IMAGE = re.compile(
    r"(?:(?P<host>[A-Za-z0-9.-]+(?::\d+)?)(?P<mark>[#/]))?"
    r"(?P<name>[a-z0-9]+(?:[._/-]+[a-z0-9]+)*)(?::(?P<tag>\w[\w.-]{0,127}))?"
)
_DIGEST = re.compile(r"sha256:[0-9a-f]{64}")
_FIELD = re.compile(r'(\w+)="([^"]*)"')


class _UnknownError(Exception):
    """Why the digest cannot be told, as a sentence."""


@dataclass(frozen=True)
class Tag:
    """An image in a registry: `name` is its repository on `host`, which is empty where the image has none.

    With a `digest` the tag means nothing.
    """

    host: str
    name: str
    tag: str
    digest: str = ""

    @property
    def reference(self) -> str:
        """The image as records and messages name it, however the spec wrote it."""
        return f"{self.host}/{self.name}" + (f"@{self.digest}" if self.digest else f":{self.tag}")


def parse_tag(image: str) -> Tag | None:
    """The tag that `image` names; None for a file, a digest, or an image of another kind than Docker's."""
    match = _IMAGE.fullmatch(image.removeprefix("docker://"))
    if match is None:
        return None
    host, mark, name = match["host"] or "", match["mark"], match["name"]
    if host == "localhost":  # podman's name for an image that is on the node
        return None
    # Before a slash a word without dot or port is a part of the name.
    if mark == "/" and not re.search(r"[.:]", host):
        host, name = "", f"{host}/{name}"
    return Tag(host, name, match["tag"] or "latest")


def parse_reference(image: str, registry: str) -> Tag | None:
    """The image that `image` names in a registry, by tag or digest; None for any other kind of image.

    A name without a host is the site's `registry`'s, else Docker Hub's.
    """
    name, mark, digest = image.partition("@")
    tag = parse_tag(name)
    if tag is None or (mark and not _DIGEST.fullmatch(digest)):
        return None
    return replace(tag, host=tag.host or registry or "docker.io", digest=digest)


def tag_digest(tag: Tag, deadline_s: float = DEADLINE_S) -> tuple[str, str]:
    """The digest that the registry gives for a tag now, or an empty string and why it is not known."""
    from http.client import HTTPException  # with TLS and mail's headers: few commands ask a registry

    late = _UnknownError(f"`{tag.host}` did not answer within {deadline_s:g} s")
    try:
        return in_time(deadline_s, lambda: _ask(tag, time.monotonic() + deadline_s), late), ""
    except _UnknownError as problem:
        return "", str(problem)
    except (OSError, HTTPException, ValueError) as problem:
        why = getattr(problem, "reason", None) or problem
        return "", str(late) if isinstance(why, TimeoutError) else f"`{tag.host}` cannot be asked: {why}"


def place_of(tag: Tag) -> tuple[str, str]:
    """The host that answers for a tag, and its name there: Docker Hub's API has a host of its own."""
    if tag.host not in ("docker.io", "index.docker.io"):
        return tag.host, tag.name
    return "registry-1.docker.io", tag.name if "/" in tag.name else f"library/{tag.name}"


def _ask(tag: Tag, end: float) -> str:
    host, name = place_of(tag)
    url = f"{_scheme(host)}://{host}/v2/{name}/manifests/{tag.tag}"
    headers = {"Accept": ", ".join(MANIFESTS)}
    status, answer, _ = _call("HEAD", url, headers, end)
    if status == 401:
        token = _token(tag, answer.get("WWW-Authenticate", ""), end)
        status, answer, _ = _call("HEAD", url, {**headers, "Authorization": f"Bearer {token}"}, end)
    if status in (401, 403):
        raise _UnknownError(f"`{tag.host}` wants a login for `{tag.name}`")
    if status == 404:
        raise _UnknownError(f"`{tag.host}` has no tag `{tag.tag}` of `{tag.name}`")
    if status != 200:
        raise _UnknownError(f"`{tag.host}` answers with status {status}")
    kind = answer.get_content_type()
    if kind not in MANIFESTS:
        raise _UnknownError(f"`{tag.host}` answers with `{kind}`, which is no manifest of an image")
    digest = str(answer.get("Docker-Content-Digest", ""))
    if not _DIGEST.fullmatch(digest):
        raise _UnknownError(f"`{tag.host}` gives no digest for `{tag.name}:{tag.tag}`")
    return digest


def _token(tag: Tag, challenge: str, end: float) -> str:
    """An anonymous token, where the registry's challenge says that it gives them."""
    kind, _, rest = challenge.partition(" ")
    fields = dict(_FIELD.findall(rest))
    realm = fields.get("realm", "")
    place = urlsplit(realm)
    if kind.lower() != "bearer" or not place.hostname or place.scheme not in ("https", _scheme(place.netloc)):
        raise _UnknownError(f"`{tag.host}` wants a login for `{tag.name}`")
    query = {"service": fields.get("service", ""), "scope": fields.get("scope", "")}
    query["scope"] = query["scope"] or f"repository:{place_of(tag)[1]}:pull"
    joint = "&" if place.query else "?"
    status, _, body = _call(
        "GET", f"{realm}{joint}{urlencode({k: v for k, v in query.items() if v})}", {}, end
    )
    if status != 200:
        raise _UnknownError(f"`{tag.host}` wants a login for `{tag.name}`")
    try:
        given = json.loads(body)
        token = given.get("token") or given["access_token"]
    except (ValueError, KeyError, AttributeError, RecursionError):
        token = None
    if not isinstance(token, str) or not token.isprintable():
        raise _UnknownError(f"`{place.hostname}` gives no token for `{tag.name}`")
    return token


def _call(method: str, url: str, headers: dict[str, str], end: float) -> tuple[int, Message, bytes]:
    import urllib.error
    import urllib.request

    request = urllib.request.Request(url, headers={"User-Agent": "jobspec", **headers}, method=method)
    left = max(end - time.monotonic(), 0.01)
    try:
        with urllib.request.urlopen(request, timeout=left) as answer:
            return answer.status, answer.headers, answer.read(MAX_TOKEN_BYTES)
    except urllib.error.HTTPError as problem:
        problem.close()
        return problem.code, problem.headers, b""


def is_this_machine(host: str) -> bool:
    name = host.rpartition("@")[2].partition(":")[0]
    return name == "localhost" or name.startswith("127.")


def _scheme(host: str) -> str:
    """Plain HTTP only to this machine, as container runtimes have it."""
    return "http" if is_this_machine(host) else "https"
