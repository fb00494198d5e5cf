"""Whether a service is ready: its port accepts, a URL answers with a status, or its log has a line."""

from __future__ import annotations

import contextlib
import http.client
import re
import socket
import threading
from pathlib import Path
from typing import Callable, Iterator

from jobspec.plan import ReadyPlan
from jobspec.runtime.base.service_places import Place

LOOPBACK = "127.0.0.1"
TRY_S = 5.0  # of silence; a server that loads a model may accept and say nothing
WHOLE_S = 10.0  # for an answer, however it comes
MAX_LINE_BYTES = 8192  # of the log, the rest of a longer one is left out

Look = Callable[[], str]  # empty once the service is ready, else what is still missing


def look_for(ready: ReadyPlan, place: Place, log: Path) -> Look:
    """The look that `ready` asks for. It goes to the address that the programs are given."""
    if ready.kind == "log":
        return _Log(log, ready.text).look
    if ready.kind == "http":
        return lambda: _asked(place, ready.text, ready.status)
    return lambda: _connected(place)


def _connected(place: Place) -> str:
    why = _refused(place.host, place.port)
    if not why:
        return ""
    missing = f"{place.host}:{place.port} does not accept connections ({why})"
    if place.host != LOOPBACK and not _refused(LOOPBACK, place.port):
        missing += f", {LOOPBACK} does: other nodes do not reach that address"
    return missing


def _refused(host: str, port: int) -> str:
    """Why nobody can connect; empty where somebody can."""
    try:
        socket.create_connection((host, port), TRY_S).close()
    except OSError as problem:
        return problem.strerror or str(problem)
    return ""


def _asked(place: Place, path: str, wanted: int) -> str:
    if missing := _connected(place):
        return missing
    connection = http.client.HTTPConnection(place.host, place.port, timeout=TRY_S)
    try:
        connection.connect()
        with _cut(connection.sock):
            connection.request("GET", path)
            status = connection.getresponse().status
    except (OSError, http.client.HTTPException) as problem:
        why = getattr(problem, "strerror", None) or str(problem) or type(problem).__name__
        return f"{place.url}{path} does not answer ({why})"
    finally:
        connection.close()
    return "" if status == wanted else f"{place.url}{path} answers with status {status}, not {wanted}"


@contextlib.contextmanager
def _cut(sock: socket.socket) -> Iterator[None]:
    """Ends the exchange after `WHOLE_S`: the socket's own time limit begins anew with each byte."""

    def end() -> None:
        with contextlib.suppress(OSError):  # it has ended by itself
            sock.shutdown(socket.SHUT_RDWR)

    timer = threading.Timer(WHOLE_S, end)
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


class _Log:
    """Reads what has been added to a log since the last look."""

    def __init__(self, log: Path, pattern: str) -> None:
        self._log, self._pattern = log, re.compile(pattern)
        self._at = 0

    def look(self) -> str:
        with self._log.open("rb") as file:
            file.seek(self._at)
            while line := file.readline(MAX_LINE_BYTES):
                if self._pattern.search(line.decode("utf-8", "replace")):
                    return ""
                if line.endswith(b"\n") or len(line) == MAX_LINE_BYTES:
                    self._at = file.tell()  # a line that is still being written is read again
        return f"no line of its log matches `{self._pattern.pattern}`"
