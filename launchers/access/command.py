"""Runs a scheduler's commands where they work: on this machine, or on a login node over SSH.

Both clients have one interface: no caller knows which one it uses. Argument lists only; text for
a remote shell is quoted word by word, and an environment travels on standard input, never in an
argument list that `ps` shows to everybody.
"""

from __future__ import annotations

import shlex
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from jobspec.finding import JobspecError, fail

DEFAULT_TIMEOUT_S = 30.0


@dataclass(frozen=True)
class Completed:
    """A command that ran, or that was given up at its deadline (`timed_out`, code 124)."""

    argv: tuple[str, ...]
    code: int
    stdout: str
    stderr: str
    timed_out: bool = False

    @property
    def complaint(self) -> str:
        """What the command said against itself: the last lines of stderr, else of stdout."""
        lines = [line for line in (self.stderr.strip() or self.stdout.strip()).splitlines() if line.strip()]
        return "\n".join(lines[-6:])


class Client(Protocol):
    """Where commands run and where run directories lie."""

    where: str

    def reach(self) -> None:
        """Connect, where that takes time, before a limit begins. Raises: as `run`."""

    def run(
        self,
        argv: Sequence[str],
        secrets: Mapping[str, str] | None = None,
        timeout_s: float = DEFAULT_TIMEOUT_S,
        stdin: str = "",
    ) -> Completed:
        """Run one command in a clean environment plus `secrets`, with `stdin` as its input.

        Raises: JobspecError when the program does not exist or the place cannot be reached.
        """

    def interactive(self, argv: Sequence[str]) -> int:
        """Run one command on this terminal; its exit code."""

    def upload(self, local: Path, remote: str) -> None:
        """Make the folder `local` available as `remote` in one step; no-op where both are one place."""

    def send(self, local: Path, remote: str) -> None:
        """Make the file `remote` like `local`: what is there already is its beginning and is kept."""

    def download(self, remote: str, local: Path) -> None:
        """Bring what is new or longer below `remote` to `local`; no-op where both are one place."""


def missing_program(name: str, where: str) -> JobspecError:
    place = "on this machine" if where == "here" else f"on `{where}`"
    return fail(
        "launch.no-program",
        f"`{name}` was not found {place}",
        why="the site profile says `scheduler: slurm`" if name.startswith("s") else "",
        fix="run on a login node, set `access.login` in the site profile, or use `--cluster local`",
    )


def openssh() -> str:
    """OpenSSH's client. Raises: JobspecError where there is none."""
    ssh = shutil.which("ssh")
    if ssh is None:
        fix = "install OpenSSH's client"
        raise fail("launch.no-ssh", "`ssh` was not found on this machine", "it reaches the login node", fix)
    return ssh


def ended(argv: Sequence[str], code: int | None, out: str, err: str, marker: str, where: str) -> Completed:
    """A command of `shell_text`, by what its shell printed; code None when it was given up.

    Raises: JobspecError when the program does not exist.
    """
    printed = out.partition(marker + "\n")[2]
    if code == 127 and marker in out:
        raise missing_program(argv[0], where)
    if code is None:
        return Completed(tuple(argv), 124, printed, err, timed_out=True)
    return Completed(tuple(argv), code, printed, err)


def shell_text(argv: Sequence[str], secrets: Mapping[str, str], marker: str, stdin: str = "") -> str:
    """A script for a login shell's standard input: clean variables, secrets, then the command.

    The command reads `stdin`, of which no line is `marker`. The script prints `marker` before the command:
    all output above it is a shell profile's.
    """
    exports = "".join(f"export {name}={shlex.quote(value)}\n" for name, value in secrets.items())
    source = f"<<'{marker}'\n{stdin}\n{marker}" if stdin else "</dev/null"
    return (
        "for name in $(compgen -e); do\n"
        '  case "$name" in\n'
        "    SLURM_CONF) ;;\n"
        '    SLURM_*|SBATCH_*|SALLOC_*|SRUN_*|SQUEUE_*|SACCT_*|SCANCEL_*) unset "$name" ;;\n'
        "  esac\n"
        "done\n"
        f"{exports}"
        f"printf '%s\\n' {shlex.quote(marker)}\n"
        f"exec {shlex.join(argv)} {source}\n"
    )
