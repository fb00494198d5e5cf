"""What the agents and the framework's own script leave for each other in an attempt's folder.

Mode `upstream`: the setup command of each node writes its log and its failure, the batch script the signals
that it cannot send.
"""

from __future__ import annotations

import contextlib
import signal
import threading
import time
from pathlib import Path
from typing import Callable, List, Sequence

from jobspec.finding import Finding, error
from jobspec.runtime.base.log_tail import tail

POLL_S = 0.5
# Each node's setup command has ended before its Ray started, and Ray is complete before the head's agent
# starts. The agents only have to see a new file, which NFS may hide while it caches a folder (acdirmax).
MEET_S = 90.0
SETUP_LOG, SETUP_FAILED = "setup.log", "setup.failed"  # written by the setup command's shell
# As the batch script sends them to a step of its own: the file says what SIGUSR2 stands for.
SIGNALS = {"USR1": signal.SIGUSR1, "TERM": signal.SIGUSR2, "INT": signal.SIGUSR2}


def failed_setups(logs: Path, hosts: Sequence[str]) -> List[Finding]:
    """One error for each node whose setup command failed: the script itself ignores that."""
    return [_setup_failed(logs / host) for host in hosts if (logs / host / SETUP_FAILED).exists()]


def _setup_failed(folder: Path) -> Finding:
    with contextlib.suppress(OSError):
        status = (folder / SETUP_FAILED).read_text().strip()
    return error(
        "upstream.setup",
        f"the setup of node `{folder.name}` failed with status {status or '?'}",
        tail(folder / SETUP_LOG) or "it printed nothing",
        "see its setup.log; give the container `container.python`, and mount the run directory into it",
        node=folder.name,
    )


def never_came(logs: Path, name: str) -> Finding:
    """The error about a node whose agent has not come to the head in time."""
    return error(
        "node.absent",
        f"the agent of node `{name}` has not connected within {MEET_S:.0f} s",
        tail(logs / name / SETUP_LOG) or "its setup command has written nothing",
        "see its setup.log, and check that the nodes reach each other by name on ports 24000-29006",
        node=name,
    )


def follow_signals(attempt: Path, received: Callable[[int], None]) -> None:
    """Hand on what the batch script writes to `signal`, from a thread of its own.

    It cannot send a signal: the script's shells between it and this process would end first.
    """
    path = attempt / "signal"

    def follow() -> None:
        handled = 0
        while True:
            with contextlib.suppress(OSError):
                words = path.read_text().split()
                for word in words[handled:]:
                    if word in SIGNALS:
                        received(SIGNALS[word])
                handled = len(words)
            time.sleep(POLL_S)

    threading.Thread(target=follow, daemon=True, name="signal-file").start()
