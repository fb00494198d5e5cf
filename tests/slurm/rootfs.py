"""Container images for the tests: one Debian root file system, made once and kept in the cache.

The training environment is not in the image: the checkout, its .venv and its Python are mounted, as the
mounts of a spec do it. So the folders that they are mounted on must exist (ch-run creates none).
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tests.slurm.machine import alone

SUITE = "bookworm"
MIRROR = os.environ.get("JOBSPEC_DEBIAN_MIRROR", "")  # debootstrap's own default when empty
# A compiler and Python's headers: Megatron-Core's dataset helpers are built inside the container.
PACKAGES = ("python3-dev", "g++")
NOT_SQUASHED = ("usr/lib/gcc", "usr/include", "usr/share/doc", "usr/share/locale", "usr/share/man")


def missing() -> str:
    """The Debian package that is needed and absent, or nothing."""
    return "" if shutil.which("debootstrap", path="/usr/sbin:/usr/bin") else "debootstrap"


def make_rootfs(cache: Path) -> Path:
    """The root file system below `cache`; half a minute the first time, then at once.

    Raises: CalledProcessError with debootstrap's output.
    """
    done = cache / f"rootfs-{SUITE}"
    with alone(done.name):
        if not done.is_dir():
            _bootstrap(cache / f"{done.name}.{os.getpid()}", done)
    return done


def _bootstrap(scratch: Path, done: Path) -> None:
    argv = ["debootstrap", "--variant=minbase", f"--include={','.join(PACKAGES)}", SUITE, str(scratch)]
    try:
        subprocess.run([*argv, *([MIRROR] if MIRROR else [])], check=True, capture_output=True, text=True)
        # Device nodes keep unprivileged users from unpacking the tree; package archives are dead weight.
        for folder in ("dev", "var/cache/apt", "var/lib/apt/lists"):
            shutil.rmtree(scratch / folder)
            (scratch / folder).mkdir()
        scratch.rename(done)
    finally:
        if scratch.exists():
            shutil.rmtree(scratch)


def make_squashfs(cache: Path) -> Path:
    """The root file system as one file, as Pyxis and Enroot take it."""
    root, done = make_rootfs(cache), cache / f"rootfs-{SUITE}-small.sqsh"
    with alone(done.name):
        if not done.is_file():
            scratch = done.with_suffix(f".{os.getpid()}")
            squash(root, scratch)
            scratch.rename(done)
    return done


def squash(root: Path, file: Path) -> None:
    """Without compiler and texts, which no test of Pyxis needs: each step's node unpacks all of it."""
    argv = ["mksquashfs", str(root), str(file), "-all-root", "-noappend", "-comp", "zstd"]
    argv += ["-Xcompression-level", "1", "-e", *NOT_SQUASHED]
    subprocess.run(argv, check=True, capture_output=True, text=True)


def make_mount_points(rootfs: Path, folders: Sequence[Path]) -> None:
    """Empty folders to mount on, which every user may reach (/root is closed in a fresh Debian)."""
    for folder in folders:
        inside = rootfs / folder.relative_to("/")
        inside.mkdir(parents=True, exist_ok=True)
        for parent in (inside, *inside.parents[: len(folder.parents) - 1]):
            parent.chmod(parent.stat().st_mode | 0o055)


def make_bundle(bundle: Path, rootfs: Path, mounts: Sequence[tuple[Path, bool]]) -> Path:
    """An OCI bundle that shares the node's network, host name and processes, as a job's step must.

    Slurm takes `<bundle>/rootfs` whatever config.json says. `mounts` are (folder, read only) pairs, seen
    at the same path inside.
    """
    bundle.mkdir()
    (bundle / "rootfs").symlink_to(rootfs)
    (bundle / "config.json").write_text(json.dumps(oci_config(mounts), indent=1))
    return bundle


def oci_config(mounts: Sequence[tuple[Path, bool]]) -> dict[str, Any]:
    """Source: OCI runtime specification 1.0; no `hostname`: that would need a uts namespace of its own."""
    capabilities = ["CAP_CHOWN", "CAP_DAC_OVERRIDE", "CAP_FOWNER", "CAP_KILL", "CAP_SETGID", "CAP_SETUID"]
    binds = [
        {
            "destination": str(path),
            "type": "bind",
            "source": str(path),
            "options": ["rbind", "ro" if read_only else "rw"],
        }
        for path, read_only in mounts
    ]
    return {
        "ociVersion": "1.0.0",
        "process": {
            "terminal": False,
            "user": {"uid": 0, "gid": 0},
            "args": ["true"],
            "env": ["PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"],
            "cwd": "/",
            "capabilities": dict.fromkeys(("bounding", "effective", "permitted"), capabilities),
            "noNewPrivileges": True,
        },
        "root": {"path": "rootfs", "readonly": False},
        "mounts": [
            {"destination": "/proc", "type": "proc", "source": "proc"},
            {"destination": "/dev", "type": "bind", "source": "/dev", "options": ["rbind", "rw"]},
            *binds,
        ],
        "linux": {"namespaces": [{"type": "mount"}]},
    }
