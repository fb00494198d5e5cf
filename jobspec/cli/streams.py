"""The three standard streams as commands can rely on them: open, and able to write any text."""

from __future__ import annotations

import io
import os
import sys


def prepare() -> None:
    """Open what the caller has closed, and escape what a stream cannot write.

    The next opened file takes a closed descriptor, and output would end up in that file. A terminal or a
    file name in another encoding than UTF-8 must not cost a verdict.
    """
    _fill_closed()
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


def _fill_closed() -> None:
    if sys.stdin is not None and sys.stdout is not None and sys.stderr is not None:
        return
    while (descriptor := os.open(os.devnull, os.O_RDWR)) < 3:  # the lowest that is free
        pass
    os.close(descriptor)
    sys.stdin = sys.stdin or open(0, encoding="utf-8")  # noqa: SIM115 - open as long as the process lives
    sys.stdout = sys.stdout or open(1, "w", encoding="utf-8")  # noqa: SIM115
    sys.stderr = sys.stderr or open(2, "w", encoding="utf-8")  # noqa: SIM115


def drop_output() -> None:
    """Send buffered output to /dev/null: Python flushes once more at exit, and would complain again."""
    null = os.open(os.devnull, os.O_WRONLY)
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except (OSError, ValueError):
            os.dup2(null, stream.fileno())
    os.close(null)
