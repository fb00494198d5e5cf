"""What the matcher found: one line of one log that a failure signature recognises."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Match:
    """A log line and the signature that it shows.

    `kind` is the signature's class; `verdict` is `Blocked` or `Fail`. `generic` lines say that something
    failed but not why, and never win over a specific one. `time` is seconds since the epoch read from the
    line or the lines before it, None where the log carries no times. `order` is the reading order.
    """

    signature: str
    kind: str
    verdict: str
    file: str
    line: int
    text: str
    title: str = ""
    why: str = ""
    fix: str = ""
    source: str = ""
    generic: bool = False
    node: str = ""
    time: float | None = None
    order: int = 0
    context: tuple[str, ...] = ()
