"""Who has called the function in which a thread waits."""

from __future__ import annotations

import re
from typing import List, Tuple

from jobspec.runtime.stalls import wait_rules
from jobspec.runtime.stalls.libraries import is_library
from jobspec.runtime.stalls.stacks import Frame
from jobspec.runtime.stalls.waits import Wait

_HELPER = re.compile(
    r"(?i)__a?enter__$|(?<![bc])lock|mutex|semaphore|barrier|condition|latch|(?:^|\.)acquire$"
)


def callers(wait: Wait) -> Tuple[Frame, ...]:
    """The frames of the program around the one at which it waits, the innermost first."""
    found: List[Frame] = []
    for frame in _outer(wait):
        if wait_rules.FORKED.search(f"{frame.file}:{frame.function}"):
            break
        found += [] if is_library(frame) else [frame]
    return tuple(found)


def is_helper(wait: Wait) -> bool:
    """Whether it waits in a function that says little without its caller: what a `with` enters, or a method
    of a lock of the program's own."""
    entered = any(frame.file.endswith("contextlib.py") for frame in _outer(wait)[:1])
    return entered or (wait.place is not None and _HELPER.search(wait.place.function) is not None)


def _outer(wait: Wait) -> Tuple[Frame, ...]:
    """The frames around that place."""
    frames = wait.thread.frames if wait.thread and wait.place else ()
    return frames[frames.index(wait.place) + 1 :] if wait.place in frames else ()
