"""A real sshd on loopback with its own keys and port, and the client configuration that reaches it."""

from __future__ import annotations

import getpass
import shlex
import shutil
import socket
import subprocess
import time
from collections.abc import Mapping
from pathlib import Path

from jobspec.launchers.access.ssh import SshClient
from tests.kits.programs_kit import IN_CI

SSHD = shutil.which("sshd") or "/usr/sbin/sshd"
HAS_SSHD = IN_CI or (Path(SSHD).exists() and shutil.which("ssh-keygen") is not None)


class Server:
    """One sshd, its keys, and the client configuration that reaches it as `login`."""

    def __init__(self, folder: Path, shown: Mapping[Path, Path] | None = None, more: str = "") -> None:
        """`shown` are folders that it and its commands see in place of others, `more` settings of sshd."""
        self.folder = folder
        self._more = more
        self._shown = shown or {}
        folder.mkdir(mode=0o700)
        for name in ("host", "user", "stranger"):
            subprocess.run(
                ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(folder / name)], check=True
            )
        self.port = free_port()
        (folder / "authorized").write_text((folder / "user.pub").read_text())
        self.known_hosts = folder / "known_hosts"
        self.trust("host")
        self.config = folder / "config"
        self.configure()
        self._process = self._start()

    def trust(self, key: str) -> None:
        """Make known_hosts expect this key."""
        kind, text = (self.folder / f"{key}.pub").read_text().split()[:2]
        self.known_hosts.write_text(f"[127.0.0.1]:{self.port} {kind} {text}\n")

    def configure(self, key: str = "user", more: str = "") -> None:
        host = (
            f"HostName 127.0.0.1\n  Port {self.port}\n  User {getpass.getuser()}\n"
            f"  IdentityFile {self.folder / key}\n"
            f"  UserKnownHostsFile {self.known_hosts}\n  IdentitiesOnly yes\n"
        )
        self.config.write_text(f"Host login\n  {host}{more}\nHost gate\n  {host}\n")

    def client(self, **options: str) -> SshClient:
        return SshClient("login", config=self.config, **options)

    def _start(self) -> subprocess.Popen[bytes]:
        Path("/run/sshd").mkdir(
            exist_ok=True
        )  # sshd refuses to start without its privilege separation folder
        settings = (
            f"Port {self.port}\nListenAddress 127.0.0.1\nHostKey {self.folder / 'host'}\nPidFile none\n"
            f"AuthorizedKeysFile {self.folder / 'authorized'}\nStrictModes no\nUsePAM no\n"
            "PasswordAuthentication no\nPermitRootLogin prohibit-password\nSubsystem sftp internal-sftp\n"
        )
        (self.folder / "sshd_config").write_text(settings + self._more)
        log = (self.folder / "log").open("wb")
        argv = [SSHD, "-D", "-e", "-f", str(self.folder / "sshd_config")]
        if self._shown:
            binds = [
                shlex.join(["mount", "--bind", str(far), str(here)]) for here, far in self._shown.items()
            ]
            script = " && ".join([*binds, f"exec {shlex.join(argv)}"])
            argv = ["unshare", "--mount", "--propagation", "private", "sh", "-c", script]
        process = subprocess.Popen(argv, stdout=log, stderr=log)
        deadline = time.monotonic() + 60
        while True:
            try:
                socket.create_connection(("127.0.0.1", self.port), timeout=1).close()
                return process
            except OSError:
                if time.monotonic() > deadline or process.poll() is not None:
                    raise AssertionError((self.folder / "log").read_text()) from None
                time.sleep(0.05)

    def stop(self) -> None:
        self._process.terminate()
        self._process.wait(timeout=60)


def free_port() -> int:
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        port: int = sock.getsockname()[1]
        return port
