"""Commands run on this machine."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

from jobspec.launchers.access.command import DEFAULT_TIMEOUT_S, Completed, missing_program
from jobspec.launchers.environment import submission_environment


class LocalClient:
    """Commands on this machine."""

    where = "here"

    def __init__(self, env: Mapping[str, str] | None = None) -> None:
        self._env = dict(os.environ if env is None else env)

    def reach(self) -> None:
        """This machine is here."""

    def run(
        self,
        argv: Sequence[str],
        secrets: Mapping[str, str] | None = None,
        timeout_s: float = DEFAULT_TIMEOUT_S,
        stdin: str = "",
    ) -> Completed:
        env = submission_environment(self._env, secrets or {})
        try:
            child = subprocess.Popen(
                list(argv),
                env=env,
                stdin=subprocess.PIPE if stdin else subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                start_new_session=True,
            )
        except FileNotFoundError as problem:
            raise missing_program(argv[0], self.where) from problem
        with child:
            try:
                out, err = child.communicate(stdin.encode() or None, timeout=timeout_s)
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

    def send(self, local: Path, remote: str) -> None:
        if not Path(remote).exists():
            Path(remote).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(local, remote)

    def download(self, remote: str, local: Path) -> None:
        if Path(remote).resolve() != local.resolve():
            shutil.copytree(remote, local, symlinks=True, dirs_exist_ok=True)


def _end(child: subprocess.Popen[bytes]) -> None:
    """Kill a command with its children: sbatch below a site's wrapper would submit after it was given up."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(child.pid, signal.SIGKILL)


def _text(data: bytes | str | None) -> str:
    return data if isinstance(data, str) else (data or b"").decode("utf-8", "replace")
