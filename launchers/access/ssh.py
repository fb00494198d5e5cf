"""The SSH client: a login node's commands and files through paramiko.

Host keys are checked against known_hosts and never accepted silently: who controls the name of a login
node would otherwise receive the secrets. `~/.ssh/config` is honoured (HostName, Port, User, IdentityFile,
UserKnownHostsFile, ProxyJump), keys come from the agent or from files, never from the site profile.
"""

from __future__ import annotations

import contextlib
import shlex
import socket
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from jobspec.finding import JobspecError, fail
from jobspec.launchers.access import transfer
from jobspec.launchers.access.command import no_paramiko, openssh, too_much
from jobspec.launchers.access.transfer import Transfers
from jobspec.runtime.base.in_time import in_time

if TYPE_CHECKING:
    import paramiko

CONNECT_TIMEOUT_S = 20.0
_WORDS = {TimeoutError: "it gives no answer", EOFError: "it ended"}  # of errors that have none


class SshClient(Transfers):
    """One connection, opened at first use and kept; commands each have their own channel."""

    def __init__(self, login: str, user: str = "", jump: str = "", config: Path | None = None) -> None:
        self.where = login
        self._user = user
        self._jump = jump
        self._config_path = config or Path("~/.ssh/config").expanduser()
        self._connections: list[paramiko.SSHClient] = []

    def reach(self) -> None:
        self._connect()

    def _shell(self, text: bytes, marker: bytes, timeout_s: float) -> tuple[int | None, bytearray, bytearray]:
        with self._connected():
            channel = self._transport().open_session(timeout=CONNECT_TIMEOUT_S)
            in_time(CONNECT_TIMEOUT_S, lambda: channel.exec_command("bash -l -s"), TimeoutError())
            deadline = time.monotonic() + timeout_s
            channel.settimeout(timeout_s)
            try:
                channel.sendall(text)
            except TimeoutError:  # its profile has not ended, and the rest does not fit into the window
                channel.close()
                return None, bytearray(), bytearray()
            channel.shutdown_write()
            return _drain(channel, deadline)

    def interactive(self, argv: Sequence[str]) -> int:
        options = ["-F", str(self._config_path)] if self._config_path.is_file() else []
        options += ["-J", self._jump] if self._jump else []
        target = f"{self._user}@{self.where}" if self._user else self.where
        words = [openssh(), "-t", *options, target, shlex.join(argv)]
        return subprocess.run(words, check=False).returncode

    def close(self) -> None:
        for connection in reversed(self._connections):
            connection.close()
        self._connections.clear()

    @contextlib.contextmanager
    def _connected(self) -> Iterator[None]:
        """Guard work over the connection; after a loss the next call opens a new one."""
        self._connect()
        import paramiko

        try:
            yield
        except (paramiko.SSHException, EOFError, ConnectionError, TimeoutError) as problem:
            self.close()
            raise fail(
                "launch.ssh-closed",
                f"the connection to `{self.where}` was lost",
                why=str(problem) or _WORDS.get(type(problem), type(problem).__name__),
                fix="try again",
            ) from problem

    @contextlib.contextmanager
    def _sftp(self) -> Iterator[paramiko.SFTPClient]:
        import paramiko

        with self._connected():
            channel = self._transport().open_session(timeout=CONNECT_TIMEOUT_S)
            channel.settimeout(transfer.SILENCE_S)
            in_time(transfer.SILENCE_S, lambda: channel.invoke_subsystem("sftp"), TimeoutError())
            with paramiko.SFTPClient(channel) as sftp:
                yield sftp

    def _transport(self) -> paramiko.Transport:
        transport = self._connect().get_transport()
        if transport is None:
            raise fail("launch.ssh-closed", f"the connection to `{self.where}` was closed", fix="try again")
        return transport

    def _connect(self) -> paramiko.SSHClient:
        if self._connections:
            return self._connections[-1]
        config = _read_config(self._config_path)
        jump = self._jump or str(config.lookup(self.where).get("proxyjump", ""))
        previous: Any = None
        for hop in [part for part in jump.split(",") if part and part != "none"]:
            previous = self._open(config, hop, previous)
        self._open(config, self.where, previous, self._user)
        return self._connections[-1]

    def _open(self, config: paramiko.SSHConfig, target: str, through: Any, user: str = "") -> Any:
        """Log in to one hop, through the previous one; `through` is the previous hop's client."""
        import paramiko

        name, _, host = target.rpartition("@")
        options = config.lookup(host)
        address, port = str(options.get("hostname", host)), int(options.get("port", 22))
        client = paramiko.SSHClient()
        _load_known_hosts(client, options)
        client.set_missing_host_key_policy(paramiko.RejectPolicy())
        keys = [str(item) for item in options.get("identityfile", [])] or None
        try:
            sock = None
            if through is not None:
                sock = through.get_transport().open_channel(
                    "direct-tcpip", (address, port), ("", 0), timeout=CONNECT_TIMEOUT_S
                )
            client.connect(
                address,
                port=port,
                username=user or name or options.get("user"),
                key_filename=keys,  # type: ignore[arg-type]  # a list is documented and taken, the stubs say str
                sock=sock,
                timeout=CONNECT_TIMEOUT_S,
                banner_timeout=CONNECT_TIMEOUT_S,
                auth_timeout=CONNECT_TIMEOUT_S,
            )
        except (paramiko.SSHException, OSError) as problem:
            client.close()
            raise _refused(host, problem) from problem
        self._connections.append(client)
        return client


def _read_config(path: Path) -> paramiko.SSHConfig:
    try:
        import paramiko
    except ModuleNotFoundError as problem:
        raise no_paramiko() from problem
    if not path.is_file():
        return paramiko.SSHConfig()
    return paramiko.SSHConfig.from_path(str(path))


def _load_known_hosts(client: paramiko.SSHClient, options: Mapping[str, Any]) -> None:
    files = str(options.get("userknownhostsfile", "~/.ssh/known_hosts")).split()
    for file in [*files, "/etc/ssh/ssh_known_hosts"]:
        path = Path(file).expanduser()
        if path.is_file():
            client.load_system_host_keys(str(path))


def _refused(host: str, problem: Exception) -> JobspecError:
    """A connection problem in words; the order matters, the classes are subclasses of each other."""
    import paramiko

    if isinstance(problem, paramiko.BadHostKeyException):
        return fail(
            "launch.ssh-host-key",
            f"`{host}` shows another host key than known_hosts has",
            why="the host was reinstalled, or somebody else answers in its name",
            fix=f"ask the cluster's staff for its fingerprint; if the change is right: ssh-keygen -R {host}",
        )
    if "not found in known_hosts" in str(problem):
        return fail(
            "launch.ssh-unknown-host",
            f"`{host}` is not in known_hosts",
            why="jobspec never accepts a host key by itself: secrets travel over this connection",
            fix=f"run `ssh {host}` once and compare the fingerprint",
        )
    # paramiko calls a connection that ends while it logs in a failed authentication, too.
    cut_off = any(text in str(problem) for text in ("saw EOF", "Authentication timeout"))
    if isinstance(problem, paramiko.AuthenticationException) and not cut_off:
        return fail(
            "launch.ssh-auth",
            f"`{host}` did not accept the login",
            why=str(problem),
            fix="load a key into the agent (ssh-add), or name `IdentityFile` and `User` in ~/.ssh/config",
        )
    if isinstance(problem, socket.gaierror):
        return fail(
            "launch.ssh-name",
            f"the host name `{host}` cannot be resolved",
            why=str(problem),
            fix="check `access.login`",
        )
    return fail(
        "launch.ssh",
        f"no SSH connection to `{host}`",
        why=str(problem) or type(problem).__name__,
        fix=f"run `ssh {host}`, which shows more; check `access` in the site profile",
    )


def _drain(channel: paramiko.Channel, deadline: float) -> tuple[int | None, bytearray, bytearray]:
    """Read both streams to their end; exit code None when the deadline came first, or it is `too_much`.

    Both are read in turns: a command that fills one buffer while we wait on the other would hang.
    """
    out, err = bytearray(), bytearray()
    while True:
        if channel.recv_ready():
            out += channel.recv(65536)
        if channel.recv_stderr_ready():
            err += channel.recv_stderr(65536)
        if (
            channel.exit_status_ready()
            and channel.eof_received
            and not (channel.recv_ready() or channel.recv_stderr_ready())
        ):
            code: int | None = channel.recv_exit_status()
            break
        if not channel.get_transport().is_active():
            raise EOFError("it ended before the command did")
        if time.monotonic() > deadline or too_much(out, err):
            code = None
            break
        if not (channel.recv_ready() or channel.recv_stderr_ready()):
            channel.status_event.wait(0.02)
    channel.close()
    return code, out, err
