"""How commands reach the machine of the scheduler: here, or over SSH."""

from __future__ import annotations

from collections.abc import Mapping

from jobspec.launchers.access.command import Client
from jobspec.launchers.access.here import LocalClient


def connect(login: str, user: str = "", jump: str = "", env: Mapping[str, str] | None = None) -> Client:
    """The client for a site profile's `access`: this machine for `here`, else SSH.

    Raises: JobspecError when paramiko is not installed or the host refuses us.
    """
    if login == "here":
        return LocalClient(env)
    from jobspec.launchers.access.ssh import SshClient  # paramiko costs 0.15 s; only who needs SSH pays

    return SshClient(login, user=user, jump=jump)
