"""Ranks 2 and 3 are on another network, and nothing from ranks 0 and 1 arrives there any more.
---
ranks: 4
expect:
  kind: [network-half-open, network, collective-all]
  says: [all_reduce, "(?i)not acknowledged|unacknowledged|half open|does not arrive|not arrive"]
  never: ["rank [0-3]( on [^ ]+)?( pid [0-9]+,?)? (sleeps|is stopped|has not come|does not come|is gone|computes)"]
"""

import ctypes
import os
import subprocess
import time
from pathlib import Path

import _kit

folder = Path(os.environ["JOBSPEC_ATTEMPT_DIR"])
SIDE = _kit.RANK // 2
NAMES = [f"js{os.getppid()}{side}" for side in "ab"]  # one parent for all ranks


def ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True)


def two_networks() -> None:
    """Two namespaces with a cable between them; they go when the last process in them ends."""
    a, b = NAMES
    for name in NAMES:
        ip("netns", "add", name)
        ip("-n", name, "link", "set", "lo", "up")
    ip("link", "add", "cable", "netns", a, "type", "veth", "peer", "name", "cable", "netns", b)
    for number, name in enumerate(NAMES, 1):
        ip("-n", name, "addr", "add", f"10.99.0.{number}/24", "dev", "cable")
        ip("-n", name, "link", "set", "cable", "up")


def enter(name: str) -> None:
    with open(f"/run/netns/{name}") as file:
        assert ctypes.CDLL(None).setns(file.fileno(), 0) == 0


def drop() -> None:
    """As a firewall, or a switch that has forgotten the way: no answer, no reset."""
    subprocess.run(["iptables", "-w", "-A", "INPUT", "-i", "cable", "-j", "DROP"], check=True)


if _kit.RANK == 0:
    two_networks()
    (folder / "cabled").touch()
while not (folder / "cabled").exists():
    time.sleep(0.1)
enter(NAMES[SIDE])
(folder / f"in{_kit.RANK}").touch()
while len(list(folder.glob("in[0-3]"))) < 4:
    time.sleep(0.1)
if _kit.RANK == 0:
    for name in NAMES:
        ip("netns", "del", name)
os.environ |= {"MASTER_ADDR": "10.99.0.1", "GLOO_SOCKET_IFNAME": "cable"}
dist = _kit.gloo()


def reduce_gradients() -> None:
    import torch

    dist.all_reduce(torch.ones(1 << 16))


reduce_gradients()
if _kit.RANK == 2:
    drop()
    _kit.here()
else:
    time.sleep(3)
reduce_gradients()
