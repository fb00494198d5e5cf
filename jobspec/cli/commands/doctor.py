"""Say what this machine has for running jobspec, what is missing, and how to get it.

Exit code 1 when an item is missing that every run needs; other missing items are only listed.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

from jobspec.cli import output, parser
from jobspec.disk import exists
from jobspec.words import install_command


@dataclass(frozen=True)
class Item:
    """One thing to look for. A missing one with `needed` makes the exit code 1."""

    name: str
    ok: bool
    detail: str
    fix: str = ""
    needed: bool = False


def add_arguments(into: argparse.ArgumentParser) -> None:
    parser.add_json(into)


def run(args: argparse.Namespace) -> int:
    items = [item for look in _LOOKS for item in look()]
    if args.json:
        output.print_json([asdict(item) for item in items])
    else:
        rows = [
            ("ok" if item.ok else ("MISSING" if item.needed else "-"), item.name, item.detail or item.fix)
            for item in items
        ]
        output.print_table(("", "WHAT", "FOUND, OR HOW TO GET IT"), rows)
    return 1 if any(item.needed and not item.ok for item in items) else 0


def _python() -> Iterator[Item]:
    version = ".".join(map(str, sys.version_info[:3]))
    yield Item("Python 3.11+", sys.version_info >= (3, 11), f"{version}, {sys.executable}", needed=True)
    yield Item("jobspec", True, output.version())


def _programs() -> Iterator[Item]:
    yield _program("bash", "apt install bash", needed=True)
    yield _program("git", "apt install git; without it commits and patches cannot be recorded", needed=True)
    yield _program("shellcheck", "apt install shellcheck; rendered scripts are checked by `bash -n` alone")
    yield _program("nvidia-smi", "no NVIDIA driver: runs here use the CPU")
    yield _program("ssh", "apt install openssh-client; needed to attach to jobs of a remote cluster")


def _program(name: str, fix: str, needed: bool = False) -> Item:
    path = shutil.which(name)
    return Item(name, path is not None, path or "", fix, needed)


def _slurm() -> Iterator[Item]:
    if shutil.which("sbatch") is None:
        yield Item("Slurm client", False, "", "run on a login node, or set `access.login` in a site profile")
        return
    missing = [name for name in ("squeue", "sacct", "scancel", "scontrol", "srun") if not shutil.which(name)]
    yield Item(
        "Slurm client", not missing, _output(["sbatch", "--version"]), f"missing: {', '.join(missing)}"
    )
    ping = _output(["scontrol", "ping"])
    up = " UP" in ping
    yield Item("Slurm controller", up, ping if up else "", f"{ping or 'no answer'}; check SLURM_CONF")


def _output(argv: list[str]) -> str:
    """The last line that a command prints; empty when it fails to run in time."""
    return (_text(argv).splitlines() or [""])[-1]


def _text(argv: list[str]) -> str:
    try:
        done = subprocess.run(argv, capture_output=True, text=True, timeout=10, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout.strip() or done.stderr.strip()


def _containers() -> Iterator[Item]:
    names = {"apptainer": "apptainer", "ch-run": "charliecloud", "podman": "podman",
             "bwrap": "bubblewrap", "crun": "oci"}  # fmt: skip
    installed = [f"{runtime} ({name})" for name, runtime in names.items() if shutil.which(name)]
    # Pyxis is a plugin of srun, and the nodes alone need the program enroot.
    if "--container-image" in _text(["srun", "--help"]):
        installed.insert(0, "pyxis (srun --container-image)")
    elif shutil.which("enroot"):
        installed.append("enroot, without Pyxis: srun has no --container-image")
    yield Item(
        "container runtimes",
        bool(installed),
        ", ".join(installed),
        "none here, though nodes may have one",
    )


def _packages() -> Iterator[Item]:
    from importlib.metadata import PackageNotFoundError, version

    extras = {
        "cluster": ("submitit", "paramiko"),
        "local": ("torch", "ray", "trl", "transformers", "safetensors", "huggingface-hub", "tensorboard",
                  "megatron-core", "pybind11"),
    }  # fmt: skip
    for extra, names in extras.items():
        for name in names:
            try:
                yield Item(name, True, version(name))
            except PackageNotFoundError:
                yield Item(name, False, "", install_command(extra))


def _places() -> Iterator[Item]:
    runs = Path(os.environ.get("JOBSPEC_RUNS") or "runs").expanduser().absolute()
    place = next(folder for folder in (runs, *runs.parents) if exists(folder))
    yield Item(
        "folder of runs", os.access(place, os.W_OK), str(runs), "set JOBSPEC_RUNS to a folder you may write"
    )
    shm = Path("/dev/shm")
    free = shutil.disk_usage(shm).free if shm.is_dir() else 0
    yield Item("/dev/shm", free > 0, output.size(free) + " free", "Ray falls back to /tmp, which is slow")


_LOOKS: tuple[Callable[[], Iterator[Item]], ...] = (
    _python,
    _programs,
    _slurm,
    _containers,
    _packages,
    _places,
)
