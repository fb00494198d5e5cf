"""GET requests to the Hugging Face hub from a node: by plain HTTP, since there may be nothing but Python.

One `HubClient` serves all threads of a node. It keeps connections, follows the hub to its file servers
without showing them the token, waits as long as the hub asks, and says in one finding what cannot be mended.
Standard library only, Python 3.9.

Sources: "Hub API endpoints" and "Rate limits" of the hub's documentation; the error codes and variables of
huggingface_hub 2.4.0.
"""

from __future__ import annotations

import contextlib
import re
import socket
import ssl
import threading
import time
import urllib.request
from base64 import b64encode
from dataclasses import dataclass, field
from http.client import HTTPConnection, HTTPException, HTTPMessage, HTTPResponse, HTTPSConnection
from typing import Any, Callable, Dict, Iterator, Mapping, Optional, Tuple
from urllib.parse import SplitResult, unquote, urljoin, urlsplit

from jobspec.finding import JobspecError, fail
from jobspec.plan import HUB_TOKEN as TOKEN

Report = Callable[[str, Mapping[str, Any]], None]

ENDPOINT = "https://huggingface.co"
# Seconds without a byte after which a connection is made anew.
STALL_S = 30.0
# In a row, without a byte between them: three to five minutes.
TRIES = 8
MAX_PAUSE_S = 600.0
ALIVE_S = 15.0
_MOVED = (301, 302, 303, 307, 308)
_AGAIN = (408, 425, 429, 500, 502, 503, 504)
_EXPIRED = (400, 401, 403, 404, 410)
_STOOD_STILL = (TimeoutError, socket.timeout)  # one class from Python 3.10 on
_RATE = re.compile(r"\bt=(\d+)")
_TOKEN = re.compile(r"[!-~]+\Z")
_NO_ADDRESS = "the hub sends us to a place that is no web address"


class RefusedError(Exception):
    """The hub asks to come again; `wait_s` is None where it does not say when."""

    def __init__(self, status: int, wait_s: Optional[float]) -> None:
        super().__init__(f"the hub answered {status}")
        self.status, self.wait_s = status, wait_s


@dataclass(frozen=True)
class Settings:
    """Where the hub is, and how it is asked. `token` is in no text that this package writes."""

    endpoint: str = ENDPOINT
    token: str = field(default="", repr=False)
    stall_s: float = STALL_S
    proxies: Mapping[str, str] = field(default_factory=dict, repr=False)
    ca_file: str = ""
    tries: int = TRIES
    pause_s: float = 1.0
    max_pause_s: float = MAX_PAUSE_S

    @staticmethod
    def of(env: Mapping[str, str], tries: int = TRIES) -> Settings:
        """As huggingface_hub reads its variables, with the usual ones for proxies and certificates."""
        low = {name.lower(): value for name, value in env.items() if value}
        proxies = {name[:-6]: value for name, value in low.items() if name.endswith("_proxy")}
        try:
            stall_s = float(env.get("HF_HUB_DOWNLOAD_TIMEOUT", "") or STALL_S)
        except ValueError:
            stall_s = STALL_S
        return Settings(
            endpoint=(env.get("HF_ENDPOINT") or ENDPOINT).rstrip("/"),
            token=env.get(TOKEN, "").strip(),
            stall_s=stall_s if stall_s > 0 else STALL_S,
            proxies=proxies,
            tries=tries,
            ca_file=env.get("SSL_CERT_FILE") or env.get("REQUESTS_CA_BUNDLE") or "",
        )


class HubClient:
    """Asks the hub, from any number of threads; each has connections of its own."""

    def __init__(self, settings: Settings, report: Report = lambda event, data: None) -> None:
        self.settings = settings
        self.restarts = 0
        self._report = report
        self._lock = threading.Lock()
        self._mine = threading.local()
        self._direct: Dict[str, str] = {}  # where the hub has sent us for a file; a signed place, for an hour
        self._paused_until = 0.0
        self._moved = time.monotonic()  # the first connection may take its time, too
        self._trying = 0
        self._tls: Optional[ssl.SSLContext] = None

    # How it goes.

    def moved(self) -> None:
        self._moved = time.monotonic()

    def alive(self) -> bool:
        """Whether bytes come, the hub has asked to wait, or a stream is making its connection anew."""
        now = time.monotonic()
        return self._trying > 0 or now < self._paused_until or now - self._moved < ALIVE_S

    def trying(self, change: int) -> None:
        with self._lock:
            self._trying += change

    def tell_restart(self, url: str, position: int, why: str) -> None:
        with self._lock:
            self.restarts += 1
        self._report("restarted", {"file": url, "at": position, "why": why})

    def pause(self, seconds: float, why: str) -> None:
        """Let no thread ask for so long."""
        seconds = min(seconds, self.settings.max_pause_s)
        until = time.monotonic() + seconds
        with self._lock:
            longer, self._paused_until = until > self._paused_until, max(until, self._paused_until)
        if longer:
            self._report("paused", {"why": why, "seconds": round(seconds, 1)})

    def _wait_turn(self) -> None:
        while time.monotonic() < self._paused_until:
            time.sleep(min(0.2, max(0.0, self._paused_until - time.monotonic())))

    # Asking.

    def get(self, url: str, first: Optional[int] = None, last: int = 0) -> HTTPResponse:
        """The answer to one GET, with bytes `first` to `last`; its body is still to be read.

        Raises: RefusedError to come again; OSError, HTTPException of the connection; JobspecError.
        """
        if not is_web(self.settings.endpoint):
            raise _no_endpoint(self.settings.endpoint)  # no other try changes that
        self._wait_turn()
        here = self._direct.get(url, url)
        by_heart = here != url
        for _ in range(10):
            answer = self._send(here, first, last)
            status = answer.status
            if status in (200, 206):
                if here != url:
                    self._direct[url] = here
                return answer
            answer.read(1 << 20)
            if status in _MOVED and answer.headers.get("Location"):
                here = _onward(here, answer.headers["Location"])
                continue
            if by_heart and status in _EXPIRED:
                self._direct.pop(url, None)
                here, by_heart = url, False
                continue
            if status in _AGAIN:
                raise RefusedError(status, _wait_s(answer.headers))
            raise _no(url, status, answer.headers, bool(self.settings.token))
        raise HTTPException(f"`{urlsplit(url).netloc}` sends us on for ever")

    def _send(self, url: str, first: Optional[int], last: int) -> HTTPResponse:
        if not is_web(url):
            raise HTTPException(_NO_ADDRESS)
        place = urlsplit(url)
        headers = {"Accept-Encoding": "identity", "User-Agent": "jobspec"}
        if first is not None:
            headers["Range"] = f"bytes={first}-{last}"
        own = urlsplit(self.settings.endpoint)
        if self.settings.token and (place.scheme, place.netloc) == (own.scheme, own.netloc):
            if not _TOKEN.match(self.settings.token):  # http.client's own refusal would quote it
                raise _no_token(url)
            headers["Authorization"] = f"Bearer {self.settings.token}"
        proxy = self._proxy(place) if place.scheme == "http" else ""
        if proxy:  # of https the tunnel's own request has them
            headers.update(_credentials(_proxy_place(proxy)))
        kept = self._connections()
        key = (place.scheme, place.netloc)
        for fresh in (False, True):
            if not fresh and key not in kept:
                continue
            connection = kept.pop(key) if not fresh else self._connect(place)
            target = url if proxy else _target(place)
            try:
                connection.request("GET", target, headers=headers)
                answer = connection.getresponse()
            except (OSError, HTTPException):
                connection.close()
                if fresh:
                    raise
                continue  # the server has closed a connection that we had kept
            kept[key] = connection
            return answer
        raise AssertionError("unreachable")

    def drop(self) -> None:
        """Close this thread's connections: what is left of an answer must not be read as the next one."""
        for connection in self._connections().values():
            connection.close()
        self._connections().clear()

    def _connections(self) -> Dict[Tuple[str, str], HTTPConnection]:
        if not hasattr(self._mine, "kept"):
            self._mine.kept = {}
        kept: Dict[Tuple[str, str], HTTPConnection] = self._mine.kept
        return kept

    def _connect(self, place: SplitResult) -> HTTPConnection:
        secure, timeout = place.scheme == "https", self.settings.stall_s
        proxy = self._proxy(place)
        at = _proxy_place(proxy) if proxy else place
        host, port = at.hostname or "", at.port or (443 if secure and not proxy else 80)
        if not secure:
            return HTTPConnection(host, port, timeout=timeout)
        connection = HTTPSConnection(host, port, timeout=timeout, context=self._context())
        if proxy:
            connection.set_tunnel(str(place.hostname), place.port or 443, _credentials(at))
        return connection

    def _proxy(self, place: SplitResult) -> str:
        proxies = dict(self.settings.proxies)
        if urllib.request.proxy_bypass_environment(str(place.hostname), proxies):  # type: ignore[attr-defined]
            return ""
        return proxies.get(place.scheme) or proxies.get("all", "")

    def _context(self) -> ssl.SSLContext:
        with self._lock:
            if self._tls is None:
                self._tls = ssl.create_default_context(cafile=self.settings.ca_file or _certificates())
            return self._tls

    # Trying again.

    @contextlib.contextmanager
    def patience(self, url: str) -> Iterator[Patience]:
        patience = Patience(self, url)
        try:
            yield patience
        finally:
            patience.moved()


class Patience:
    """Failures in a row of one stream; the last one too many is raised as a finding."""

    def __init__(self, client: HubClient, url: str) -> None:
        self._client, self._url, self._count = client, url, 0

    def moved(self) -> None:
        """A byte has come, or the stream has ended."""
        if self._count:
            self._client.trying(-1)
        self._count = 0

    def failed(self, problem: Exception, position: int = 0) -> None:
        """Wait before the next try. Raises: JobspecError after too many."""
        settings = self._client.settings
        if not self._count:
            self._client.trying(1)
        self._count += 1
        self._client.drop()
        if isinstance(problem, ssl.SSLCertVerificationError) or self._count > settings.tries:
            raise _given_up(self._url, problem, self._count, position, settings)
        pause_s = min(30.0, settings.pause_s * 2.0 ** (self._count - 1))
        if isinstance(problem, RefusedError):
            self._client.pause(problem.wait_s if problem.wait_s is not None else pause_s, str(problem))
            return
        self._client.tell_restart(self._url, position, _why(problem, settings))
        # A connection that stood still has waited already.
        time.sleep(0.0 if isinstance(problem, _STOOD_STILL) else pause_s)


def is_web(url: str) -> bool:
    """Whether the URL is one of http or https with a host."""
    with contextlib.suppress(ValueError):
        place = urlsplit(url)
        return place.scheme in ("http", "https") and bool(place.hostname) and place.port != 0
    return False


def _target(place: SplitResult) -> str:
    return (place.path or "/") + (f"?{place.query}" if place.query else "")


def _onward(here: str, location: str) -> str:
    """Where an answer sends us. Raises: HTTPException for what is no address."""
    with contextlib.suppress(ValueError):
        there = urljoin(here, location)
        if urlsplit(there).port != 0 and there.isascii():
            return there
    raise HTTPException(_NO_ADDRESS)


def _proxy_place(proxy: str) -> SplitResult:
    return urlsplit(proxy if "//" in proxy else f"http://{proxy}")


def _credentials(proxy: SplitResult) -> Dict[str, str]:
    if proxy.username is None:
        return {}
    pair = f"{unquote(proxy.username)}:{unquote(proxy.password or '')}"
    return {"Proxy-Authorization": f"Basic {b64encode(pair.encode()).decode()}"}


def _certificates() -> Optional[str]:
    """certifi's file where this Python knows no other place; None for its own."""
    paths = ssl.get_default_verify_paths()
    if paths.cafile or paths.capath:
        return None
    try:
        import certifi
    except ImportError:
        return None
    return str(certifi.where())


def _wait_s(headers: HTTPMessage) -> Optional[float]:
    rate = _RATE.search(headers.get("ratelimit") or "")
    if rate:
        return float(rate.group(1)) + 1
    after = headers.get("Retry-After") or ""
    return float(after) if after.isdecimal() else None


def _why(problem: Exception, settings: Settings) -> str:
    if isinstance(problem, _STOOD_STILL):
        return f"no byte for {settings.stall_s:g} s"
    return f"{type(problem).__name__}: {problem}" if str(problem) else type(problem).__name__


def _no(url: str, status: int, headers: HTTPMessage, with_token: bool) -> JobspecError:
    """The finding for an answer that another try does not change."""
    code, said = headers.get("X-Error-Code") or "", headers.get("X-Error-Message") or ""
    why = " ".join(part for part in (f"it answered {status}", code, said) if part)
    if code in ("RevisionNotFound", "EntryNotFound"):
        fix = "correct `revision`: a commit of that repository"
        return fail("stage.hub-absent", f"the hub has no `{url}`", why, fix, file=url)
    if status in (401, 403):
        fix = (
            "accept the terms on the model's page, with the account of that token"
            if with_token
            else f"correct the id; for a gated one accept its terms, and export `{TOKEN}` before you submit"
        )
        have = f"`{TOKEN}` is set" if with_token else f"`{TOKEN}` is not set"
        return fail("stage.hub-denied", f"the hub does not give `{url}`", f"{why}; {have}", fix, file=url)
    if status == 404:
        fix = "correct the id, or export `HF_TOKEN` of an account that sees it"
        return fail("stage.hub-absent", f"the hub has no `{url}`", why, fix, file=url)
    return fail("stage.hub-refused", f"the hub does not give `{url}`", why, "", file=url)


def _no_endpoint(endpoint: str) -> JobspecError:
    fix = f"write it like `{ENDPOINT}`, or unset it"
    return fail("stage.hub-endpoint", f"`HF_ENDPOINT` is `{endpoint}`, which is no web address", "", fix)


def _no_token(url: str) -> JobspecError:
    why = "it has a blank, a line break or a letter that no token has"
    return fail("stage.hub-denied", f"`{TOKEN}` is no token", why, "export the token alone", file=url)


def _given_up(url: str, problem: Exception, count: int, position: int, settings: Settings) -> JobspecError:
    kept = "what is there is kept, and the next run goes on with it"
    last = _why(problem, settings)
    if isinstance(problem, RefusedError):
        what = f"the hub refuses `{url}` again and again"
        fix = f"wait some minutes, or export `{TOKEN}` for higher limits; {kept}"
        return fail("stage.hub-refused", what, f"{count} times in a row; {last}", fix, file=url)
    if isinstance(problem, ssl.SSLCertVerificationError):
        fix = "name the site's certificates by `SSL_CERT_FILE` under `env` of the site profile"
        return fail(
            "stage.hub-unreachable", f"`{url}` shows no certificate that counts here", last, fix, file=url
        )
    why = f"{count} connections in a row brought no byte, the last one: {last}; {position} bytes were there"
    fix = f"look at this node's network and proxy, or use `stage: node_local`; {kept}"
    return fail("stage.hub-stalled", f"`{url}` does not arrive", why, fix, file=url)
