"""Saves that were in flight when a run was ended: files of the checkpoint folder that were just written."""

from __future__ import annotations

import contextlib
import os
import time
from pathlib import Path
from typing import Iterator, List, Tuple

from jobspec.finding import Finding, warning

JUST_S = 5.0  # a save of many ranks writes all the time
LOOK_S = 2.0  # Slurm kills what is left soon


def in_flight(folder: Path, ended: float) -> Iterator[Finding]:
    """A warning that names the save. `ended`: when the run was ended, by the clock of that storage."""
    recent = sorted(_written_since(folder, ended - JUST_S, time.monotonic() + LOOK_S))
    if recent:
        yield warning(
            "checkpoint.in-flight",
            f"`{recent[-1][1]}` in the checkpoint folder was written {_when(recent[-1][0] - ended)}, "
            f"{len(recent)} file{'s' * (len(recent) > 1)} within {JUST_S:.0f} s: that save may be incomplete",
            "a command that is ended while it saves leaves what it has written",
            "resume from the save before it, unless the framework marks this one as whole",
        )


def _when(seconds: float) -> str:
    return f"{abs(seconds):.1f} s {'before' if seconds < 0 else 'after'} the run was ended"


def _written_since(folder: Path, since: float, until: float) -> Iterator[Tuple[float, str]]:
    """(time, name) of files, those of the newest folders first: there may be thousands of older ones."""
    folders: List[Path] = [folder]
    while folders and time.monotonic() < until:
        below: List[Tuple[float, Path]] = []
        with contextlib.suppress(OSError), os.scandir(folders.pop()) as entries:
            for entry in entries:
                with contextlib.suppress(OSError):
                    modified = entry.stat(follow_symlinks=False).st_mtime
                    if entry.is_dir(follow_symlinks=False):
                        below.append((modified, Path(entry.path)))
                    elif modified >= since and entry.is_file(follow_symlinks=False):
                        yield modified, str(Path(entry.path).relative_to(folder))
        folders.extend(path for _, path in sorted(below))
