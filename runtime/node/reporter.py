"""Progress of a long operation on its way to the head, as often as the event log bears."""

from __future__ import annotations

import time
from typing import Any, Callable, Mapping

Report = Callable[[str, Mapping[str, Any]], None]


def reporter(phase: str, nodes: int, emit: Callable[[Mapping[str, Any]], None]) -> Report:
    """A function that emits an event of the phase, but progress at most every so many seconds."""
    last_report = [0.0]
    # About four lines a second from all nodes together: progress must not fill the event log.
    pause_s = max(1.0, nodes / 4)

    def report(event: str, data: Mapping[str, Any]) -> None:
        if event == "progress" and data.get("bytes") != data.get("total"):
            if time.monotonic() - last_report[0] < pause_s:
                return
            last_report[0] = time.monotonic()
        emit({"phase": phase, "progress": {"what": event, **data}})

    return report
