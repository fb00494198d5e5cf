"""Programs that import images: Enroot where `tests/slurm/build_pyxis.sh` built it, and stand-ins."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
REAL = ROOT / ".cache/pyxis/bin"
STAND_IN = Path(__file__).with_name("stand_in_images.py")
WAYS = ("enroot", "stand-in enroot", "stand-in apptainer")


def use(way: str, folder: Path, patch: pytest.MonkeyPatch) -> str:
    """Let PATH have the program of this way alone of its kind; the container runtime that it is of."""
    name = way.rpartition(" ")[2]
    if way == "enroot":
        if not (REAL / "enroot").exists():
            pytest.skip("needs Enroot: tests/slurm/build_pyxis.sh builds it")
        place = REAL
        for variable in ("ENROOT_CONFIG_PATH", "ENROOT_CACHE_PATH", "ENROOT_TEMP_PATH"):
            (folder / variable).mkdir()
            patch.setenv(variable, str(folder / variable))
    else:
        place = folder / "bin"
        place.mkdir()
        (place / name).symlink_to(STAND_IN)
    patch.setenv("PATH", f"{place}:{os.environ['PATH']}")
    for variable in ("http_proxy", "HTTP_PROXY", "https_proxy", "HTTPS_PROXY"):
        patch.delenv(variable, raising=False)
    return "apptainer" if name == "apptainer" else "pyxis"
