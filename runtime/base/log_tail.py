"""The last lines of a log, for the text of a finding."""

from __future__ import annotations

import re
from pathlib import Path

LOG_TAIL_LINES = 15
_ANSI = re.compile(r"\x1b\[[0-9;]*m")


def tail(log: Path, lines: int = LOG_TAIL_LINES) -> str:
    """The last lines of a log, without colours; empty when there is none."""
    try:
        with log.open("rb") as file:
            file.seek(max(0, log.stat().st_size - 32768))
            text = file.read().decode("utf-8", "replace")
    except OSError:
        return ""
    return "\n".join(_ANSI.sub("", text).strip().splitlines()[-lines:])
