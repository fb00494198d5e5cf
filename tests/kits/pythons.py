"""The oldest Python that the runtime has to run on, where this machine has one."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest


def _works(python: Path) -> bool:
    """Whether it is 3.9: a `python3.9` of pyenv on PATH may only say that no version of it was chosen."""
    code = "import sys; sys.exit(sys.version_info[:2] != (3, 9))"
    try:
        done = subprocess.run([python, "-c", code], capture_output=True, timeout=60, check=False)
    except OSError:
        return False
    return done.returncode == 0


def _python39() -> Path | None:
    given = os.environ.get("JOBSPEC_PYTHON39") or shutil.which("python3.9")
    made = sorted(Path.home().glob(".pyenv/versions/3.9.*/bin/python3.9"))
    return next(filter(_works, [*([Path(given)] if given else []), *made]), None)


PYTHON39 = _python39() or Path("python3.9")
needs_python39 = pytest.mark.skipif(
    not PYTHON39.is_absolute(), reason="needs Python 3.9: JOBSPEC_PYTHON39 may name one"
)
