"""Runs a scheduler's commands where they work: on this machine, or on a login node over SSH.

Both clients have one interface, so that nothing above knows which it has. Argument lists only; text for
a remote shell is quoted word by word, and an environment travels on standard input, never in an
argument list that `ps` shows to everybody.
"""

from __future__ import annotations

import contextlib
import os
import shlex
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from jobspec.finding import JobspecError, fail
from jobspec.launchers.environment import submission_environment
from jobspec.launchers.slurm.commands import is_transient

DEFAULT_TIMEOUT_S = 30.0
BACK_OFF_S = (0.5, 2.0, 5.0)


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

    def run(
        self,
        argv: Sequence[str],
        secrets: Mapping[str, str] | None = None,
        timeout_s: float = DEFAULT_TIMEOUT_S,
    ) -> Completed:
        """Run one command in a clean environment plus `secrets`.

        Raises: JobspecError when the program does not exist or the place cannot be reached.
        """

    def interactive(self, argv: Sequence[str]) -> int:
        """Run one command on this terminal; its exit code."""

    def upload(self, local: Path, remote: str) -> None:
        """Make the folder `local` available as `remote` in one step; no-op where both are one place."""

    def download(self, remote: str, local: Path) -> None:
        """Bring what is new or longer below `remote` to `local`; no-op where both are one place."""


class LocalClient:
    """Commands on this machine."""

    where = "here"

    def __init__(self, env: Mapping[str, str] | None = None) -> None:
        self._env = dict(os.environ if env is None else env)

    def run(
        self,
        argv: Sequence[str],
        secrets: Mapping[str, str] | None = None,
        timeout_s: float = DEFAULT_TIMEOUT_S,
    ) -> Completed:
        env = submission_environment(self._env, secrets or {})
        try:
            child = subprocess.Popen(
                list(argv),
                env=env,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                start_new_session=True,
            )
        except FileNotFoundError as problem:
            raise missing_program(argv[0], self.where) from problem
        with child:
            try:
                out, err = child.communicate(timeout=timeout_s)
            except subprocess.TimeoutExpired as problem:
                _end(child)
                said = _text(problem.stdout), _text(problem.stderr)
                return Completed(tuple(argv), 124, *said, timed_out=True)
            except BaseException:  # Ctrl-C among them
                _end(child)
                raise
        return Completed(tuple(argv), child.returncode, _text(out), _text(err))

    def interactive(self, argv: Sequence[str]) -> int:
        try:
            return subprocess.run(
                list(argv), env=submission_environment(self._env, {}, ("TERM",)), check=False
            ).returncode
        except FileNotFoundError as problem:
            raise missing_program(argv[0], self.where) from problem

    def upload(self, local: Path, remote: str) -> None:
        if not Path(remote).exists():
            shutil.copytree(local, remote, symlinks=True)

    def download(self, remote: str, local: Path) -> None:
        if Path(remote).resolve() != local.resolve():
            shutil.copytree(remote, local, symlinks=True, dirs_exist_ok=True)


def _end(child: subprocess.Popen[bytes]) -> None:
    """Kill a command with its children: sbatch below a site's wrapper would submit after it was given up."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(child.pid, signal.SIGKILL)


def _text(data: bytes | str | None) -> str:
    return data if isinstance(data, str) else (data or b"").decode("utf-8", "replace")


def missing_program(name: str, where: str) -> JobspecError:
    place = "on this machine" if where == "here" else f"on `{where}`"
    return fail(
        "launch.no-program",
        f"`{name}` was not found {place}",
        why="the site profile says `scheduler: slurm`" if name.startswith("s") else "",
        fix="run on a login node, set `access.login` in the site profile, or use `--cluster local`",
    )


def run_retrying(
    client: Client,
    argv: Sequence[str],
    *,
    timeout_s: float = DEFAULT_TIMEOUT_S,
    back_off_s: Sequence[float] = BACK_OFF_S,
    sleep: Callable[[float], None] = time.sleep,
) -> Completed:
    """Run a command that only reads, again after a pause while the controller is busy or away.

    The last answer is returned whatever it says; the caller decides what a failure means.
    """
    done = client.run(argv, timeout_s=timeout_s)
    for pause in back_off_s:
        if not (done.timed_out or (done.code != 0 and is_transient(done.stderr))):
            break
        sleep(pause)
        done = client.run(argv, timeout_s=timeout_s)
    return done


def connect(login: str, user: str = "", jump: str = "", env: Mapping[str, str] | None = None) -> Client:
    """The client for a site profile's `access`: this machine for `here`, else SSH.

    Raises: JobspecError when paramiko is not installed or the host refuses us.
    """
    if login == "here":
        return LocalClient(env)
    from jobspec.launchers.access.ssh import SshClient  # paramiko costs 0.15 s; only who needs SSH pays

    return SshClient(login, user=user, jump=jump)


def shell_text(argv: Sequence[str], secrets: Mapping[str, str], marker: str) -> str:
    """A script for a login shell's standard input: clean variables, secrets, then the command.

    `marker` is printed before the command starts, so that what a profile prints is told apart.
    """
    exports = "".join(f"export {name}={shlex.quote(value)}\n" for name, value in secrets.items())
    return (
        "for name in $(compgen -e); do\n"
        '  case "$name" in\n'
        "    SLURM_CONF) ;;\n"
        '    SLURM_*|SBATCH_*|SALLOC_*|SRUN_*|SQUEUE_*|SACCT_*|SCANCEL_*) unset "$name" ;;\n'
        "  esac\n"
        "done\n"
        f"{exports}"
        f"printf '%s\\n' {shlex.quote(marker)}\n"
        f"exec {shlex.join(argv)} </dev/null\n"
    )
