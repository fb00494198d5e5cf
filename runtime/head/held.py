"""Whether a held run is idle: its job has no step but its own.

No program in a container can ask Slurm: the batch script counts the steps, and leaves what it saw in
`attempts/<n>/steps` ("<number of the look> <steps>"). A run never ends for what nobody has seen.
"""

from __future__ import annotations

from pathlib import Path
from typing import Tuple

from jobspec.finding import Finding, warning

LOOK_S = 1.0  # between two looks at the file
GAP_S = 120.0  # the script looks every 20 s at least: after a longer gap nothing is known of the time before


def ended(limit_s: int) -> Finding:
    span = f"{limit_s} s" if limit_s % 60 else f"{limit_s // 60} min"
    what = f"the held run was ended: nobody used it for {span}"
    why = "no `exec`, `attach` or `run --here` had a step in its job (`launch.hold_idle`)"
    return warning("run.idle", what, why)


class Idle:
    """The time since somebody used the run."""

    def __init__(self, file: Path, limit_s: float, now: float) -> None:
        self._file = file
        self._limit_s = limit_s
        self._used = self._seen = now
        self._look = 0
        self._look, _ = self._read()

    def over(self, now: float) -> bool:
        """Whether nobody has used the run for the limit, by a look that was just made."""
        look, steps = self._read()
        if look == self._look:
            return False
        if steps != 1 or now - self._seen > GAP_S:
            self._used = now
        self._look, self._seen = look, now
        return now - self._used >= self._limit_s

    def _read(self) -> Tuple[int, int]:
        """The last look; the one before where the file is not there yet, or on a disk that is away."""
        try:
            look, steps = self._file.read_text(encoding="ascii").split()
            return int(look), int(steps)
        except (OSError, ValueError):
            return self._look, 0
