"""What the line of the program at which a thread stands tells of its wait. By the text alone, so inferred."""

from __future__ import annotations

import re
from typing import Optional

from jobspec.runtime.stalls.stacks import Frame

POLL_S = 60.0
COLLECTIVES = (
    r"all_reduce\w*|all_gather\w*|_all_gather_base|reduce_scatter\w*|broadcast\w*|barrier|monitored_barrier"
    r"|gather\w*|scatter\w*|reduce|send\w*|recv\w*|i?send|i?recv|all_to_all\w*|batch_isend_irecv|wait_tensor|all_to_all_single"
)
COLLECTIVE = re.compile(rf"\b(?:dist|distributed|c10d)\.({COLLECTIVES})\(")
WORK = re.compile(r"\b(?:\w*_)?(?:works?|handles?|reqs?|requests?|h|w)\d*(?:\[\w+\])?\.wait\(")
FUTURE = re.compile(r"\bfut\w*\.(?:wait|value)\(|\brpc_async\(.*\)\.wait\(|\.to_here\(")  # of torch, in C++
SYNC = re.compile(r"\.(?:item|tolist|cpu|numpy)\(\)|\.synchronize\(\)")
JOINS = re.compile(r"\b(?:TCPStore|FileStore)\(")  # C++ polls until all of its world are there
STORE = re.compile(r"(?:store|prefix)\w*\.(?:wait|get|multi_get)\(")
STANDARD = re.compile(r"\bstd(?:in|out|err)\b")  # a stream of a program that it has started
_JOINED = re.compile(r"\b(?!thread\b|worker\b)(\w{4,})\.join\(")  # a name that tells
_LOCK = re.compile(r"^(?:async )?with (.+?):|^(?:\w+ = )?([\w.\[\]]+)\.acquire\(")
_AWAITED = re.compile(r"([\w.\[\]]+)\.wait(?:_for)?\(")
_LOCKISH = re.compile(r"(?i)lock|mutex|sem|guard|cond\b")
RETAKES = re.compile(r"\b_acquire_restore\(|^self\._lock\.acquire\(")  # of Python's conditions
_SECONDS = re.compile(r"\bsleep\((\d+(?:\.\d+)?|\.\d+)\)")


def wanted_lock(text: str) -> str:
    """The lock that a line of the program takes."""
    found = _LOCK.match(text.strip())
    name = (found[1] or found[2]) if found else ""
    return name if found and (found[2] or _LOCKISH.search(name) or re.fullmatch(r"[\w.\[\]]+", name)) else ""


def awaited(text: str) -> str:
    """The lock, condition or event at which a line of the program waits."""
    found = _AWAITED.search(text)
    return found[1] if found else wanted_lock(text)


def lets_go(name: str, text: str) -> bool:
    """Whether a line waits on the condition of that name: meanwhile it does not hold its lock."""
    return re.search(rf"(?<![\w.]){re.escape(name)}\.wait(?:_for)?\(", text) is not None


def joined(place: Optional[Frame]) -> str:
    """The name of the thread that a line joins, where it is one of its own."""
    found = _JOINED.search(place.text) if place else None
    return found[1].lower() if found else ""


def naps(place: Optional[Frame]) -> bool:
    """Whether a line sleeps for a moment only, by its number."""
    seconds = _SECONDS.search(place.text) if place else None
    return seconds is not None and float(seconds[1]) <= POLL_S
