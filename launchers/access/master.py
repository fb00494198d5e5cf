"""A login node over the user's own OpenSSH connection, which stands already: no second one is ever opened.

For sites that ask for a second factor at each login. `ssh -M` of the user is the master; each command is a
session of it. Source: ssh(1), `-M`, `-S` and `-O`; ssh_config(5), ControlMaster and ControlPath.
"""

from __future__ import annotations

import contextlib
import os
import select
import selectors
import shlex
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import IO, TYPE_CHECKING

from jobspec.finding import JobspecError, fail
from jobspec.launchers.access import transfer
from jobspec.launchers.access.command import no_paramiko, openssh, too_much
from jobspec.launchers.access.transfer import Transfers

if TYPE_CHECKING:
    import paramiko

ASK_TIMEOUT_S = 20.0
# sun_path of unix(7) has 108 bytes with its end; ssh binds `PATH.` and 16 letters first (OpenSSH 9.2, mux.c).
MAX_PATH = 107 - 17
SSH_FAILED = 255  # of ssh itself, and of a command that ends so


class MasterClient(Transfers):
    """Commands and files over the master at a ControlPath; `auto` is that of the user's configuration."""

    def __init__(
        self, login: str, user: str = "", jump: str = "", master: str = "auto", config: Path | None = None
    ) -> None:
        self.where = login
        self._target = f"{user}@{login}" if user else login
        self._master = master
        self._file = ["-F", str(config)] if config else []
        self._jump = ["-J", jump] if jump else []  # a part of some control paths
        self._path = ""

    def reach(self) -> None:
        self._session_options()

    def _shell(self, text: bytes, marker: bytes, timeout_s: float) -> tuple[int | None, bytearray, bytearray]:
        words = [openssh(), *self._session_options(), "-T", "--", self._target, "bash -l -s"]
        with subprocess.Popen(
            words,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,  # Ctrl-C is for jobspec, which ends it
        ) as child:
            try:
                code, out, err = _talk(child, text, time.monotonic() + timeout_s)
            finally:
                # No wait for the end of its streams: the master has them until the far command ends.
                child.kill()
        if code == SSH_FAILED and (marker not in out or not self._stands()):
            raise self._lost(err.decode("utf-8", "replace"))
        return code, out, err

    def interactive(self, argv: Sequence[str]) -> int:
        words = [openssh(), *self._session_options(), "-t", "--", self._target, shlex.join(argv)]
        return subprocess.run(words, check=False).returncode

    @contextlib.contextmanager
    def _sftp(self) -> Iterator[paramiko.SFTPClient]:
        try:
            import paramiko
        except ModuleNotFoundError as problem:
            raise no_paramiko() from problem
        ours, theirs = socket.socketpair()
        words = [openssh(), *self._session_options(), "-s", "--", self._target, "sftp"]
        with (
            tempfile.TemporaryFile() as said,
            ours,
            subprocess.Popen(
                words, stdin=theirs.fileno(), stdout=theirs.fileno(), stderr=said, start_new_session=True
            ) as child,
        ):
            theirs.close()
            try:
                yield paramiko.SFTPClient(_Pipe(ours))  # type: ignore[arg-type]  # it takes others too
            except (paramiko.SSHException, EOFError, ConnectionError, TimeoutError) as problem:
                raise self._lost(_text(said) or str(problem)) from problem
            finally:
                ours.close()
                child.kill()

    def _session_options(self) -> list[str]:
        """Options of ssh for a session of the master. Raises: JobspecError when there is no master.

        Where the master ends in this very moment, ssh would open a connection of its own: its way to the host
        is a command that fails at once.
        """
        if not self._path:
            self._path = self._control_path()
        if not self._stands():
            raise self._no_master()
        alone = ("ControlMaster=no", "ProxyCommand=false", "BatchMode=yes")
        return [*self._file, "-S", self._path, *(word for option in alone for word in ("-o", option))]

    def _control_path(self) -> str:
        """Where the socket of the master is, as ssh itself reads the configuration."""
        given = [] if self._master == "auto" else ["-S", self._master]
        done = _ask([openssh(), *self._file, *self._jump, *given, "-G", "--", self._target])
        settings = dict(line.partition(" ")[::2] for line in done.stdout.splitlines())
        path = settings.get("controlpath", "none")
        if len(os.fsencode(path)) > MAX_PATH:
            what = f"`{path}` is too long for the socket of a master: {MAX_PATH} bytes is the most"
            raise fail("launch.ssh-no-master", what, fix="choose a shorter path, such as `~/.ssh/master-%C`")
        if done.returncode == 0 and path != "none":
            return path.replace("%", "%%")  # which ssh expands again
        what = f"the SSH configuration has no `ControlPath` for `{self.where}`"
        fix = (
            f"add `Host {self.where}` with `ControlPath ~/.ssh/master-%C` to ~/.ssh/config, "
            "or give `access.master` the path of the socket"
        )
        raise fail("launch.ssh-no-master", what, done.stderr.strip(), fix)

    def _stands(self) -> bool:
        return self._check().returncode == 0

    def _check(self) -> subprocess.CompletedProcess[str]:
        return _ask([openssh(), *self._file, "-S", self._path, "-O", "check", "--", self._target])

    def _no_master(self) -> JobspecError:
        open_it = shlex.join(["ssh", "-fNM", *self._file, *self._jump, "-S", self._path, self._target])
        return fail(
            "launch.ssh-no-master",
            f"no SSH master connection to `{self.where}` is open",
            why=f"jobspec opens none of its own with `access.master`; {self._check().stderr.strip()}",
            fix=f"run `{open_it}`, log in, and repeat this command",
        )

    def _lost(self, said: str) -> JobspecError:
        if not self._stands():
            return self._no_master()
        end_it = shlex.join(["ssh", "-S", self._path, "-O", "exit", self._target])
        why = said.strip() or "the master answers, and the other side does not"
        return fail(
            "launch.ssh-closed",
            f"the SSH master connection to `{self.where}` gave no session",
            why,
            f"try again; where it hangs, `{end_it}`, and open it anew",
        )


class _Pipe:
    """What paramiko's SFTP asks of its own channel; of a socket it would wait for ever for the next byte."""

    def __init__(self, end: socket.socket) -> None:
        end.settimeout(transfer.SILENCE_S)
        self._end = end
        self.send, self.recv, self.close = end.send, end.recv, end.close

    def get_name(self) -> str:
        return "sftp"

    def recv_ready(self) -> bool:
        return bool(select.select([self._end], [], [], 0)[0])


def _talk(child: subprocess.Popen[bytes], text: bytes, end: float) -> tuple[int | None, bytearray, bytearray]:
    """`communicate` that gives up at `end`, or when it is `too_much`; the code is None then."""
    assert child.stdin and child.stdout and child.stderr
    out, err, left = bytearray(), bytearray(), memoryview(text)
    with selectors.DefaultSelector() as ready:
        ready.register(child.stdin, selectors.EVENT_WRITE)
        ready.register(child.stdout, selectors.EVENT_READ, out)
        ready.register(child.stderr, selectors.EVENT_READ, err)
        while ready.get_map() and time.monotonic() < end and not too_much(out, err):
            for key, _ in ready.select(end - time.monotonic()):
                if key.fileobj is child.stdin:
                    left = _written(key.fd, left)
                    if not left:
                        ready.unregister(child.stdin)
                        child.stdin.close()  # the end of the shell's input
                elif block := os.read(key.fd, 1 << 16):
                    key.data.extend(block)
                else:
                    ready.unregister(key.fileobj)
        if ready.get_map():
            return None, out, err
    with contextlib.suppress(subprocess.TimeoutExpired):
        return child.wait(end - time.monotonic()), out, err
    return None, out, err


def _written(fd: int, text: memoryview) -> memoryview:
    """What is left of `text` after a write to a pipe that is ready, of a piece that fits."""
    try:
        return text[os.write(fd, text[: select.PIPE_BUF]) :]
    except BrokenPipeError:  # the other side ends without reading it all
        return text[:0]


def _ask(words: Sequence[str]) -> subprocess.CompletedProcess[str]:
    """What ssh says without a connection; it may have to look up a name."""
    try:
        return subprocess.run(
            words,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=ASK_TIMEOUT_S,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return subprocess.CompletedProcess(words, SSH_FAILED, "", f"no answer within {ASK_TIMEOUT_S:.0f} s")


def _text(file: IO[bytes]) -> str:
    file.seek(0)
    return file.read().decode("utf-8", "replace")
