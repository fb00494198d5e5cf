"""Two nodes on this machine, for agents: network namespaces with a bridge between them."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from tests.kits.agent_lab import Run

IP = shutil.which("ip") or ""
NETNS = pytest.mark.skipif(os.geteuid() != 0 or not IP, reason="needs root and ip(8) for network namespaces")


@contextmanager
def spaces() -> Iterator[list[str]]:
    """Their names. Each has 10.88.7.2 or .3, and its own loopback."""
    tag = str(os.getpid())
    bridge, names = f"jb{tag}", [f"jn{tag}a", f"jn{tag}b"]
    commands = [
        f"netns add {bridge}",
        f"-n {bridge} link add br0 type bridge",
        f"-n {bridge} link set br0 up",
    ]
    for number, space in enumerate(names):
        commands += [
            f"netns add {space}",
            f"-n {space} link set lo up",
            f"link add veth0 netns {space} type veth peer name v{number} netns {bridge}",
            f"-n {bridge} link set v{number} master br0 up",
            f"-n {space} addr add 10.88.7.{number + 2}/24 dev veth0",
            f"-n {space} link set veth0 up",
            f"-n {space} route add default dev veth0",
        ]
    try:
        for command in commands:
            subprocess.run([IP, *command.split()], check=True, capture_output=True)
        yield names
    finally:
        for space in [*names, bridge]:
            subprocess.run([IP, "netns", "del", space], check=False, capture_output=True)


class NetRun(Run):
    """Its nodes are the namespaces."""

    @property
    def hosts(self) -> list[str]:
        return [f"10.88.7.{index + 2}" for index in range(self.plan.nodes)]
