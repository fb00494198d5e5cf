"""A deadline for what has none of its own: a stat on a dead mount, a name look-up, an answer byte by byte.

Standard library only, Python 3.9.
"""

from __future__ import annotations

import threading
from typing import Callable, List, TypeVar

T = TypeVar("T")


def in_time(seconds: float, call: Callable[[], T], late: Exception) -> T:
    """What `call` returns or raises, in a thread that is left behind when it hangs. Raises: `late` then."""
    answers: List[T] = []
    problems: List[Exception] = []

    def work() -> None:
        try:
            answers.append(call())
        except Exception as problem:  # noqa: BLE001 - raised below
            problems.append(problem)

    working = threading.Thread(target=work, daemon=True, name="in-time")
    working.start()
    working.join(seconds)
    if problems:
        raise problems[0]
    if not answers:
        raise late
    return answers[0]
