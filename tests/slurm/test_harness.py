"""The test cluster itself: what the other tests rely on is true of it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Literal

import pytest

from tests.slurm import cluster as harness
from tests.slurm.cluster_files import ALICE, Options, address
from tests.slurm.lab import Lab, await_true
from tests.slurm.machine import CHECKOUT

pytestmark = [pytest.mark.slurm]


def traces(cluster: harness.Cluster) -> list[str]:
    """What a cluster could leave on this machine: its processes, mounts, cgroups and folder."""
    name = cluster.lab.name
    found = [
        str(path) for path in (cluster.lab, *(folder for _, folder in cluster.cgroups())) if path.exists()
    ]
    found += [line for line in Path("/proc/self/mounts").read_text().splitlines() if name in line]
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                text = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
            except OSError:
                continue
            found += [text] if name in text else []
    return found


def test_nodes_have_their_own_name_address_and_tmp(lab: Lab) -> None:
    lab.slurm("srun", "-N4", "bash", "-c", "hostname > /tmp/me; hostname > $HOME/seen-$(hostname)")
    shown = lab.slurm(
        "srun", "-N4", "-l", "bash", "-c", "cat /tmp/me; ls $HOME/seen-*; rm /tmp/me; hostname -i"
    )
    for index, node in enumerate(lab.cluster.nodes):
        lines = [line.split(": ", 1)[1] for line in shown.splitlines() if line.startswith(f"{index}: ")]
        assert lines[0] == node
        assert len(lines) == 1 + 4 + 1, "the shared folder shows the files of all four nodes"
        assert lines[-1] == address(node)


def test_everybody_can_bind_the_same_port(lab: Lab) -> None:
    # As servers do: else the closed connections of an earlier Ray would count.
    listen = "import socket,time; s=socket.create_server(('', 6379)); time.sleep(2); print('ok')"
    assert lab.slurm("srun", "-N4", "python3", "-c", listen).split() == ["ok"] * 4


def test_job_that_daemonises_leaves_nothing(lab: Lab) -> None:
    lab.slurm(
        "srun", "-N2", "bash", "-c", "setsid sleep 900 & setsid bash -c 'sleep 901 & disown'; sleep 0.5"
    )
    for node in ("n1", "n2"):
        await_true(lambda n=node: not lab.cluster.processes(n), f"{node} to be clean", 60)  # type: ignore[misc]


def test_power_failure_and_return(lab: Lab) -> None:
    card = ["cat", "/sys/class/net/eth0/address"]
    before = lab.cluster.run("n4", card).stdout
    lab.cluster.kill("n4")
    assert not lab.cluster.alive("n4")
    with pytest.raises(harness.ClusterError, match="not running"):
        lab.cluster.run("n4", ["true"])
    lab.cluster.revive("n4")
    assert lab.slurm("srun", "-w", "n4", "hostname").strip() == "n4"
    assert lab.cluster.run("n4", card).stdout == before != ""


def test_unprivileged_user(lab: Lab) -> None:
    done = lab.cluster.run("ctl", ["srun", "-N1", "id", "-un"], user="alice", timeout=30)
    assert done.stdout.strip() == "alice", done.stderr
    assert lab.cluster.run("n1", ["test", "-w", "/etc/slurm"], user="alice").returncode != 0


@pytest.mark.parametrize("own_freezer", [False, True])
@pytest.mark.parametrize("accounting", ["none", "slurmdbd"])
def test_two_clusters_at_once_and_stop_leaves_nothing(
    lab: Lab, accounting: Literal["none", "slurmdbd"], own_freezer: bool
) -> None:
    """A developer's cluster, or another checkout's, runs beside the one of the tests."""
    other = harness.Cluster(
        f"harness-{os.getpid()}",
        Options(nodes=1, accounting=accounting, gpus=2, own_freezer=own_freezer),
        owned=True,
    )
    assert other.lab != lab.cluster.lab
    other.start()
    try:
        done = other.run("ctl", ["srun", "--gres=gpu:2", "printenv", "CUDA_VISIBLE_DEVICES"], timeout=30)
        assert done.stdout.strip() == "0,1", done.stderr
        sacct = other.run("ctl", ["sacct"], timeout=30)
        assert (sacct.returncode == 0) == (accounting == "slurmdbd")
        assert lab.slurm("sinfo", "-h", "-p", "main", "-o", "%D").strip() == "4", (
            "the first cluster is undisturbed"
        )
        other.run("ctl", ["srun", "bash", "-c", "setsid sleep 902 & sleep 0.3"], timeout=30)
        await_true(lambda: not other.processes("n1"), "the job's daemon to end", 60)
        assert traces(other)
    finally:
        other.stop()
    assert traces(other) == []


def test_command_line(lab: Lab) -> None:
    def call(*argv: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", "tests.slurm.cluster", "--name", lab.cluster.name, *argv],
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
            cwd=CHECKOUT,
        )

    assert call("in", "n2", "hostname").stdout == "n2\n"
    assert call("in", "--user", "alice", "ctl", "id", "-u").stdout == f"{ALICE}\n"
    assert call("in", "n2", "sh", "-c", "exit 7").returncode == 7
    assert call("status").stdout.split() == ["ctl", "up", "n1", "up", "n2", "up", "n3", "up", "n4", "up"]
    assert "is alive" in call("revive", "n2").stderr
