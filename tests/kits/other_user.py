"""Work of the tests as another user."""

from __future__ import annotations

import json
import os
import traceback
from collections.abc import Callable
from typing import Any


def in_child(work: Callable[[], Any], become: Callable[[], None]) -> Any:
    """`work()`'s JSON value from a forked child after `become()`: other user or other limits."""
    read, write = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            become()
            os.write(write, json.dumps(work()).encode())
        except BaseException:  # noqa: BLE001 - a child of pytest must never return into it
            traceback.print_exc()
        finally:
            os._exit(0)
    os.close(write)
    with os.fdopen(read, "rb") as stream:
        text = stream.read()
    os.waitpid(pid, 0)
    return json.loads(text)


def as_nobody() -> None:
    os.setgroups([])
    os.setgid(65534)
    os.setuid(65534)
