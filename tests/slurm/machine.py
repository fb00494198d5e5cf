"""What the test cluster asks of the machine it runs on: processes, cgroups, folders that users may enter."""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

CHECKOUT = Path(__file__).resolve().parents[2]
CACHE = CHECKOUT / ".cache"
MASKED = (Path("/tmp"), Path("/run"), Path("/dev/shm"))  # each node has its own
# Program -> Debian package, all needed.
PROGRAMS = {
    "slurmctld": "slurmctld",
    "slurmd": "slurmd",
    "sbatch": "slurm-client",
    "munged": "munge",
    "ip": "iproute2",
    "nsenter": "util-linux",
    "setpriv": "util-linux",
}
ACCOUNTING_PROGRAMS = {"slurmdbd": "slurmdbd", "mariadbd": "mariadb-server"}


def pyxis(release: str = "") -> Path | None:
    """Where `build_pyxis.sh` has put the real Pyxis and Enroot; None where `stand_in_pyxis.py` is used.

    Slurm loads no plugin that was built for another version of it.
    """
    folder = CACHE / "pyxis"
    real = os.environ.get("JOBSPEC_PYXIS") != "stand-in" and not release
    return folder if real and (folder / "lib/slurm/spank_pyxis.so").is_file() else None


def release_wanted() -> str:
    """The Debian release whose Slurm a cluster has by default; empty: this machine's own."""
    return os.environ.get("JOBSPEC_SLURM", "")


def slurm_of(release: str) -> Path:
    """Where `unpack_slurm.sh` puts a release's Slurm; the nodes see it laid over their /usr."""
    return CACHE / f"slurm-{release}"


def missing(accounting: bool = True, release: str | None = None) -> str:
    """Why no cluster can be started here, with the packages to install; empty if it can."""
    if os.geteuid() != 0:
        return "the test cluster needs root (namespaces, mounts)"
    programs = dict(PROGRAMS)
    if accounting:
        programs.update(ACCOUNTING_PROGRAMS)
    path = os.environ.get("PATH", "") + ":/usr/sbin:/sbin"
    absent = sorted({package for name, package in programs.items() if not shutil.which(name, path=path)})
    if absent:
        return f"Debian packages not installed: {' '.join(absent)}"
    other = release_wanted() if release is None else release
    unpacked = not other or slurm_of(other).is_dir()
    return "" if unpacked else f"no Slurm of {other} here: tests/slurm/unpack_slurm.sh {other}"


@dataclass(frozen=True)
class Process:
    """A process id and its start time, so that a re-used id is never signalled."""

    pid: int
    started: str

    @classmethod
    def of(cls, pid: int) -> Process:
        return cls(pid, _stat(pid)[19])

    def alive(self) -> bool:
        with contextlib.suppress(OSError):
            fields = _stat(self.pid)
            return fields[19] == self.started and fields[0] not in "ZX"
        return False


def _stat(pid: int) -> list[str]:
    """Fields of /proc/PID/stat from `state` on; the name before it may hold blanks."""
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()


def children(parent: int) -> Iterator[int]:
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with contextlib.suppress(OSError):
                if int(_stat(int(entry.name))[1]) == parent:
                    yield int(entry.name)


def read_only_paths() -> list[Path]:
    """What every node must see besides the shared folder: the checkout, its environment, its Python.

    An environment may borrow the packages of another one (a `.pth` file).
    """
    wanted = [CHECKOUT, Path(sys.prefix).resolve(), Path(sys.base_prefix).resolve()]
    wanted += [Path(entry).resolve() for entry in sys.path if entry.endswith("site-packages")]
    kept: list[Path] = []
    for path in wanted:
        seen = any(path.is_relative_to(other) for other in (*kept, Path("/usr")))
        if path != Path("/") and not seen:
            kept.append(path)
    return kept


def closed_ancestors(paths: Sequence[Path]) -> list[Path]:
    """Folders on the way to `paths` that other users may not enter (/root, a private temp folder).

    Each node masks them with an empty folder and grafts the paths in, so that alice gets through.
    """
    found: list[Path] = []
    for path in paths:
        for folder in reversed(path.parents):
            masked = any(folder.is_relative_to(other) for other in (*MASKED, *found))
            if not masked and not folder.stat().st_mode & 0o001:
                found.append(folder)
    return found


def cgroup_folders(lab: Path, own_freezer: bool = False) -> list[tuple[str, Path]]:
    """(controller, folder on this machine) pairs that hold one cgroup per node.

    Slurm 22.05 contains a job's processes by the freezer of cgroup v1, its memory by the memory controller.
    On a machine with cgroup v2 alone the freezer can still be mounted (`own_freezer`); memory is v2's there.
    Its cgroup/v2 plugin is no way out: it wants systemd, or a process tree that is v2 from the root on.
    """
    mounted = [
        name for name in ("freezer", "memory") if os.access(f"/sys/fs/cgroup/{name}/cgroup.procs", os.W_OK)
    ]
    if own_freezer or "freezer" not in mounted:
        return [("freezer", lab / "freezer" / lab.name)]
    return [(name, Path("/sys/fs/cgroup") / name / lab.name) for name in mounted]


def remove_cgroup(folder: Path) -> None:
    """Remove a tree of empty cgroups; the kernel needs a moment after the last process died."""
    deadline = time.monotonic() + 60
    while folder.exists():
        for path in sorted((p for p in folder.rglob("*") if p.is_dir()), reverse=True):
            with contextlib.suppress(OSError):
                path.rmdir()
        try:
            folder.rmdir()
        except OSError as error:
            if time.monotonic() > deadline:
                raise OSError(f"{folder} cannot be removed: {error}") from error
            time.sleep(0.05)


@contextlib.contextmanager
def alone(what: str) -> Iterator[None]:
    """Until this is left no other process of the checkout gets in: tests run in several."""
    CACHE.mkdir(exist_ok=True)
    with (CACHE / f"{what}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def prepare_database(folder: Path) -> None:
    """An empty MariaDB data folder: made once and kept in the cache, since making it takes seconds."""
    template = CACHE / "mariadb"
    with alone("mariadb"):
        if not template.is_dir():
            _make_database(template)
    subprocess.run(["cp", "-a", str(template), str(folder)], check=True)


def _make_database(template: Path) -> None:
    with TemporaryDirectory(dir=CACHE) as scratch:
        subprocess.run(
            [
                "mariadb-install-db",
                "--no-defaults",
                "--user=root",
                "--auth-root-authentication-method=normal",
                "--skip-test-db",
                "--innodb-log-file-size=8M",
                f"--datadir={scratch}/data",
            ],
            check=True,
            capture_output=True,
        )
        Path(scratch, "data").rename(template)
