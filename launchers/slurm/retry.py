"""Commands that only read, tried again while Slurm's controller is busy or away."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence

from jobspec.launchers.access.command import DEFAULT_TIMEOUT_S, Client, Completed
from jobspec.launchers.slurm.commands import is_transient

BACK_OFF_S = (0.5, 2.0, 5.0)


def run_retrying(
    client: Client,
    argv: Sequence[str],
    *,
    timeout_s: float = DEFAULT_TIMEOUT_S,
    back_off_s: Sequence[float] = BACK_OFF_S,
    within_s: float = math.inf,
    sleep: Callable[[float], None] = time.sleep,
) -> Completed:
    """Run a command that only reads, again after a pause while the controller is busy or away.

    The last answer is returned whatever it says; the caller decides what a failure means. None is waited for
    longer than `within_s`.
    """
    until = time.monotonic() + within_s
    done = client.run(argv, timeout_s=_left(timeout_s, until))
    for pause in back_off_s:
        away = done.timed_out or (done.code != 0 and is_transient(done.stderr))
        if not away or time.monotonic() + pause > until:
            break
        sleep(pause)
        done = client.run(argv, timeout_s=_left(timeout_s, until))
    return done


def _left(timeout_s: float, until: float) -> float:
    """At least a second: a call that gets less says nothing of the controller."""
    return min(timeout_s, max(1.0, until - time.monotonic()))
