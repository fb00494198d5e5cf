"""Runs a scheduler's commands where they work: on this machine, or on a login node over SSH.

Both clients have one interface: no caller knows which one it uses. Argument lists only; text for
a remote shell is quoted word by word, and an environment travels on standard input, never in an
argument list that `ps` shows to everybody.
"""

from __future__ import annotations

import secrets as secrets_module
import shlex
import shutil
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence, Sized
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from jobspec.finding import JobspecError, fail
from jobspec.words import install_command

DEFAULT_TIMEOUT_S = 30.0
# Of one command, both streams together: sources of several checkouts, packed, are the largest.
MAX_ANSWER_BYTES = 1 << 30


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


def no_paramiko() -> JobspecError:
    what = "the site profile's `access.login` is another host, and paramiko is not installed"
    fix = f"run `{install_command('cluster')}`, or run jobspec on the login node"
    return fail("launch.no-paramiko", what, fix=fix)


def openssh() -> str:
    """OpenSSH's client. Raises: JobspecError where there is none."""
    ssh = shutil.which("ssh")
    if ssh is None:
        fix = "install OpenSSH's client"
        raise fail("launch.no-ssh", "`ssh` was not found on this machine", "it reaches the login node", fix)
    return ssh


class LoginShell(ABC):
    """How a client over SSH runs a command: a login shell gets it as its input."""

    where: str

    @abstractmethod
    def _shell(self, text: bytes, marker: bytes, timeout_s: float) -> tuple[int | None, bytearray, bytearray]:
        """What `bash -l -s` with the input `text` answers: its exit code and both streams.

        The code is None when it was given up, at the deadline or because of `too_much`.
        Raises: JobspecError when the login node cannot be reached.
        """

    def run(
        self,
        argv: Sequence[str],
        secrets: Mapping[str, str] | None = None,
        timeout_s: float = DEFAULT_TIMEOUT_S,
        stdin: str = "",
    ) -> Completed:
        marker = f"jobspec-{secrets_module.token_hex(8)}"
        text = shell_text(argv, secrets or {}, marker, stdin)
        code, out, err = self._shell(text.encode(), marker.encode(), timeout_s)
        if too_much(out, err):
            raise _no_answer(argv[0], self.where)
        _, begun, printed = out.decode("utf-8", "replace").partition(f"{marker}\n")
        if code == 127 and begun:
            raise missing_program(argv[0], self.where)
        said = err.decode("utf-8", "replace")
        if code is None:
            return Completed(tuple(argv), 124, printed, said, timed_out=True)
        return Completed(tuple(argv), code, printed, said)


def too_much(out: Sized, err: Sized) -> bool:
    """Whether both streams of a command together are more than anybody needs."""
    return len(out) + len(err) >= MAX_ANSWER_BYTES


def _no_answer(program: str, where: str) -> JobspecError:
    return fail(
        "launch.remote-failed",
        f"`{program}` printed more than {MAX_ANSWER_BYTES >> 20} MiB on `{where}`, and was given up",
        why="what a login shell's profile prints counts, too",
        fix=f"see what `ssh {where} bash -l -c true` prints, and silence it in the shell's profile",
    )


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
