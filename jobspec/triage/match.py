"""What the matcher found: one line of one log that a failure signature recognises."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Match:
    """A log line and the signature that it shows.

    `kind` is the signature's class; `verdict` is `Blocked` or `Fail`. `generic` lines say that something
    failed but not why, and never win over a specific one. `time` is seconds since the epoch read from the
    line or its neighbours, None where the log carries no times. `order` is the reading order.
    `wrapper` lines only repeat that something else failed, and come after everything else. `survived` ones
    were followed by further training steps. `facts` are what the runtime or a look at this machine adds.
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
    wrapper: bool = False
    survived: bool = False
    boundary: str = ""
    node: str = ""
    time: float | None = None
    order: int = 0
    context: tuple[str, ...] = ()
    facts: tuple[str, ...] = ()
