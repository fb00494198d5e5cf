"""Whether this machine reaches the internet: a bounded attempt, and what its variables say of a proxy."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

HOSTS = (("api.wandb.ai", 443), ("huggingface.co", 443))  # what runs ask for
WAIT_S = 3.0
PROXIES = ("https_proxy", "HTTPS_PROXY", "all_proxy", "ALL_PROXY", "http_proxy", "HTTP_PROXY")


@dataclass(frozen=True)
class Reach:
    """What was found: `reached` is None behind a proxy, which is not tried. `why` says what was seen."""

    reached: bool | None
    why: str


def reach(env: Mapping[str, str], hosts: Sequence[tuple[str, int]] = HOSTS, wait_s: float = WAIT_S) -> Reach:
    """Connect to one of the hosts within `wait_s` seconds and send nothing. A lookup that hangs is left."""
    proxy = next((name for name in PROXIES if env.get(name)), "")
    if proxy:
        return Reach(None, f"`{proxy}` is set here: connections go through a proxy")
    reached: list[str] = []
    tries = [threading.Thread(target=_try, args=(host, wait_s, reached), daemon=True) for host in hosts]
    for thread in tries:
        thread.start()
    until = time.monotonic() + wait_s
    for thread in tries:
        thread.join(max(0.0, until - time.monotonic()))
    names = " or ".join(host for host, _ in hosts)
    if reached:
        return Reach(True, f"{reached[0]} is reached from here")
    return Reach(False, f"nothing here reaches {names} within {wait_s:.0f} s")


def _try(host: tuple[str, int], wait_s: float, reached: list[str]) -> None:
    try:
        socket.create_connection(host, wait_s).close()
    except OSError:
        return
    reached.append(host[0])
