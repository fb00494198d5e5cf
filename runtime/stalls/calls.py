"""What a thread waits for by its system call, where no frame tells."""

from __future__ import annotations

import re
from typing import Optional, Pattern, Tuple

from jobspec.runtime.stalls import kinds

_CALLS: Tuple[Tuple[Pattern[str], str], ...] = (
    (re.compile(r"^\w+ on (?:FIFO|pipe|/dev/(?:pts/|ptmx|tty|console))|^open of FIFO"), kinds.PIPE),
    (re.compile(r"^accept"), kinds.IDLE),
    (re.compile(r"^\w+ on socket|^connect"), kinds.NETWORK),
    (re.compile(r"^(?:p?read|p?write|f\w*sync|getdents)\w* on /(?!dev/)"), kinds.DISK),
    (re.compile(r"^\w+ in \w+ of \w+$"), kinds.DISK),
    (re.compile(r"^(?:wait4|waitid)"), kinds.CHILD),
    (re.compile(r"^flock|^fcntl"), kinds.FILE_LOCK),
    (re.compile(r"^(?:clock_)?nanosleep|^clock_nanosleep"), kinds.SLEEP),
    (re.compile(r"^futex"), kinds.LOCK),
    (re.compile(r"^(?:epoll_p?wait|p?poll|p?select6?)$"), kinds.OTHER),
    (re.compile(r"^pause|^rt_sig(?:timedwait|suspend)"), kinds.SIGNALLED),
)
AT_TERMINAL = re.compile(r" on /dev/(?:pts/|tty|console)")
ELSEWHERE = " on another socket"  # of who has the other end of a pair, and waits at one of its own
_OPS = {kinds.LOCK: kinds.NATIVE, kinds.OTHER: kinds.SELECT}
_INPUT = re.compile(r"\b(?:raw_)?input\(")


def told(call: str, text: str) -> Optional[Tuple[str, str]]:
    """(kind, op) of the call, at a line of the program with this text."""
    kind = next((kind for pattern, kind in _CALLS if pattern.search(call)), None)
    if kind is None or kind == kinds.DISK:
        return (kind, call) if kind else None
    on = call.partition(" on ")[2].replace("FIFO ", "")
    if kind == kinds.PIPE and call.startswith("read"):
        if "ptmx" in on:
            on = kinds.PTY
        elif on.startswith("/dev/"):
            on = kinds.TERMINAL
        elif _INPUT.search(text):
            on = kinds.PROMPT
    return kind, _OPS.get(kind, on)
