"""A deadline for calls that have none."""

from __future__ import annotations

import os
import threading

import pytest

from jobspec.runtime.base.in_time import in_time

LATE = RuntimeError("late")


def test_what_comes_in_time_is_returned_or_raised() -> None:
    assert in_time(60, lambda: None, LATE) is None
    with pytest.raises(FileNotFoundError):
        in_time(60, lambda: os.stat("/nowhere/at/all"), LATE)  # noqa: PTH116


def test_what_hangs_is_left_behind() -> None:
    go_on, ended = threading.Event(), threading.Event()

    def hang() -> None:
        go_on.wait()
        ended.set()

    with pytest.raises(RuntimeError, match="late"):
        in_time(0.01, hang, LATE)
    assert not ended.is_set()
    go_on.set()
    assert ended.wait(60)
