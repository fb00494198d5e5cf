"""What the matcher found: one line of one log that a failure signature recognises."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Match:
    """A log line and the signature that it shows.

    `kind` is the signature's class; `verdict` is `Blocked`, `Fail` or `Note`. A `generic` line says that
    something failed but not why; it never wins over a specific line. A `wrapper` line only repeats that
    something else failed; it comes after all other failures. A `survived` line did not end the
    run; `trained_on` tells that train steps followed it. `place` is where the exception was raised, as
    `file:line function`, `doing` what the script did then, and `main`
    tells that the main program raised it: it ended then. `caught`
    tells that a logger printed its traceback, and that the same process went on.
    `time` is in seconds since the epoch, from the line or its neighbours; None in a log without times.
    `until` is the time of the next line that tells one, where this one tells none.
    `order` is the reading order. `facts` come from the runtime or from this machine.
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
    trained_on: bool = False
    boundary: str = ""
    place: str = ""
    doing: str = ""
    main: bool = False
    caught: bool = False
    node: str = ""
    time: float | None = None
    until: float | None = None
    order: int = 0
    context: tuple[str, ...] = ()
    facts: tuple[str, ...] = ()
