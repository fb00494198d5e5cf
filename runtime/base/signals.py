"""Signals that ask a process to end, none of them lost.

Python runs a handler in the main thread, between two bytecodes. When a signal arrives just before that
thread goes to sleep in `wait` or `acquire`, the handler runs when something else wakes the thread: in a
training, after hours. So nothing here waits for handlers. An agent reads signals from a pipe that the
interpreter's own C handler writes to (signal.set_wakeup_fd), and a process without threads takes them by
sigwait(3).
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import threading
from queue import SimpleQueue
from typing import TYPE_CHECKING, Callable, FrozenSet, Optional

if TYPE_CHECKING:
    Received = SimpleQueue[int]
else:
    Received = SimpleQueue

HANDLED = frozenset({signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2})
# Ignored by Python itself; what it starts gets them back (subprocess, `restore_signals`).
PYTHONS_OWN = frozenset({signal.SIGPIPE, signal.SIGXFSZ})


def handled() -> FrozenSet[int]:
    """The signals that ask this process to end: without SIGHUP below nohup(1), which ignores it."""
    ignored = signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
    return HANDLED - {signal.SIGHUP} if ignored else HANDLED


def hold() -> None:
    """Keep the signals pending, in forked children too, until `receive` or `reap_until`.

    Nothing else stays blocked or ignored as the caller left it: programs would inherit it, and could not be
    told to end. bash starts `&` without SIGINT and SIGQUIT.
    """
    for number in signal.valid_signals() - PYTHONS_OWN - {signal.SIGHUP}:
        if signal.getsignal(number) is signal.SIG_IGN:
            signal.signal(number, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_SETMASK, handled())


def receive() -> Received:
    """A queue of the signals that arrive from now on, and of those that were kept pending.

    Must be called in the main thread, once in a process.
    """
    received: Received = SimpleQueue()
    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
    for number in handled():
        signal.signal(number, _ignore)  # without a handler there is no byte; the work is the reader's
    threading.Thread(target=_read, args=(reader, received.put), daemon=True, name="signals").start()
    signal.pthread_sigmask(signal.SIG_UNBLOCK, HANDLED)
    return received


def _ignore(_number: int, _frame: object) -> None:
    """SIG_IGN would write nothing to the pipe, and programs that are started would inherit it."""


def _read(reader: int, put: Callable[[int], None]) -> None:
    while True:
        for number in os.read(reader, 64):
            if number in HANDLED:
                put(number)


def forward(child: subprocess.Popen[bytes], number: int) -> None:
    """Send a signal to a child that may have ended at this moment."""
    with contextlib.suppress(ProcessLookupError):
        child.send_signal(number)


def reap_until(pid: int) -> int:
    """Collect every child that ends, orphans included, until `pid` does; its wait(2) status.

    Signals are handed on to `pid`. They and SIGCHLD must be blocked, and this process without threads.
    """
    while True:
        number = signal.sigwait({*handled(), signal.SIGCHLD})
        if number != signal.SIGCHLD:
            os.kill(pid, number)  # it is ours, not collected yet: the pid cannot be another's
            continue
        status = _reap(pid)
        if status is not None:
            return status


def _reap(child: int) -> Optional[int]:
    """Collect all that have ended: one SIGCHLD may stand for several. The status of `wanted`, if it has."""
    child_status: Optional[int] = None
    while True:
        try:
            pid, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return child_status
        if pid == 0:
            return child_status
        if pid == child:
            child_status = status
