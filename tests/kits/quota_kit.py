"""A folder with a quota, on a disk that has room: a subvolume of Btrfs in a file. For root alone."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest


def commands(image: Path, mounted: Path, size: int, disk: int = 400 << 20) -> list[list[str]]:
    """What makes `mounted`/limited, which takes `size` bytes; root is bound by it too."""
    limited = str(mounted / "limited")
    return [
        ["truncate", "--size", str(disk), str(image)],
        ["mkfs.btrfs", "-q", str(image)],
        ["mount", "-o", "loop", str(image), str(mounted)],
        ["btrfs", "quota", "enable", str(mounted)],
        ["btrfs", "subvolume", "create", limited],
        limit(Path(limited), size),
    ]


def limit(folder: Path, size: int) -> list[str]:
    return ["btrfs", "qgroup", "limit", str(size), str(folder)]


@contextmanager
def quota(made: Path, size: int) -> Iterator[Path]:
    """The limited folder. Its mount does not outlive this."""
    if not shutil.which("mkfs.btrfs"):
        pytest.skip("needs btrfs-progs")
    mounted = made / "quota"
    mounted.mkdir()
    try:
        for argv in commands(made / "quota.img", mounted, size):
            done = subprocess.run(argv, capture_output=True, text=True, check=False)
            if argv[0] == "mount" and done.returncode:
                pytest.skip("needs a loop device and Btrfs in the kernel")
            assert done.returncode == 0, done.stderr
        yield mounted / "limited"
    finally:
        # Lazy: a file that is still open must not keep the mount.
        subprocess.run(["umount", "--lazy", str(mounted)], capture_output=True, check=False)
