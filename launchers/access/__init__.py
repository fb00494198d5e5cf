"""How commands reach the machine of the scheduler: here, or over SSH."""

from __future__ import annotations

from typing import Protocol

from jobspec.launchers.access.command import Client
from jobspec.launchers.access.here import LocalClient


class Place(Protocol):
    """How a login node is reached, as a site profile's `access` or the record of a launch says it."""

    @property
    def login(self) -> str: ...
    @property
    def user(self) -> str: ...
    @property
    def jump(self) -> str: ...
    @property
    def master(self) -> str: ...


def connect(to: Place) -> Client:
    """The client for a place: this machine for `here`, else SSH, over the user's master where one is named.

    Raises: JobspecError when paramiko is not installed or the host refuses us.
    """
    if to.login == "here":
        return LocalClient()
    if to.master:
        from jobspec.launchers.access.master import MasterClient

        return MasterClient(to.login, to.user, to.jump, to.master)
    from jobspec.launchers.access.ssh import SshClient  # paramiko costs 0.15 s; only who needs SSH pays

    return SshClient(to.login, user=to.user, jump=to.jump)
