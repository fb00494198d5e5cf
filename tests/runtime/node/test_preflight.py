"""Each check against facts of a node as it should not be."""

import json
import socket
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from jobspec.plan import Plan, RayPlan
from jobspec.runtime.base import network
from jobspec.runtime.base.identity import from_environment
from jobspec.runtime.base.network import Address
from jobspec.runtime.node.agent import Node
from jobspec.runtime.node.facts import Facts
from jobspec.runtime.node.preflight import check
from tests.kits.agent_lab import make_run

PLAN = Plan("t", "command", "c", "slurm", "ray", ray=RayPlan(port=6379, port_min=20000, port_max=20999))
GOOD = Facts(
    node="n1",
    python=(3, 11, 7),
    python_path="/usr/bin/python3",
    addresses=(Address("lo", "127.0.0.1"), Address("eth0", "10.0.0.1")),
    ip="10.0.0.1",
    ephemeral=(32768, 60999),
    open_files=65536,
    free_pids=None,
    local_dir="/tmp/jobspec",
    local_free=1 << 40,
    local_error="",
    shm_bytes=1 << 34,
    gpus=0,
    cpus=8,
    clock_skew_s=0.1,
    canary="",
    ports=tuple(range(20000, 20011)),
)


def test_good_node_has_no_findings() -> None:
    assert check(PLAN, GOOD) == ()


@pytest.mark.parametrize(
    ("facts", "plan", "rule", "words"),
    [
        ({"python": (3, 8, 1)}, {}, "preflight.python", "3.8.1"),
        ({"canary": "`/x` is not there"}, {}, "preflight.shared-dir", "/x"),
        ({"ip": None}, {"interface": "ib0"}, "preflight.address", "ib0"),
        ({"ip": None}, {"subnet": "10.9.0.0/16"}, "preflight.address", "10.9.0.0/16"),
        ({"ephemeral": (15000, 65535)}, {}, "preflight.ports", "15000-65535"),
        ({"ports": (20000,)}, {}, "preflight.ports", "only 1"),
        ({"open_files": 1024}, {}, "preflight.open-files", "1024"),
        ({"free_pids": 10}, {}, "preflight.pids", "10"),
        ({"shm_bytes": 64 << 20}, {"shm_min_bytes": 1 << 30}, "preflight.shm", "64.0 MiB"),
        ({"local_error": "Read-only file system"}, {}, "preflight.node-local", "Read-only"),
        ({"local_free": 1 << 30, "stage_bytes": 1 << 30}, {}, "preflight.disk", "1.0 GiB free"),
        ({"gpus": 7}, {"gpus_per_node": 8}, "preflight.gpus", "the node has 7 GPUs, the plan needs 8"),
        ({"conflicts": ("ROCR_VISIBLE_DEVICES",)}, {}, "preflight.variable", "ROCR_VISIBLE_DEVICES"),
    ],
)
def test_fault_is_an_error_with_the_node(
    facts: dict[str, Any], plan: dict[str, Any], rule: str, words: str
) -> None:
    found = check(replace(PLAN, **plan), replace(GOOD, **facts))
    assert [finding.rule for finding in found if finding.is_error][:1] == [rule]
    assert words in found[0].what + found[0].why
    assert found[0].node == "n1"
    assert found[0].fix


def test_head_port_in_ephemeral_range() -> None:
    plan = replace(PLAN, ray=RayPlan(port=54001, port_min=20000, port_max=20999))
    assert "head port 54001" in check(plan, GOOD)[0].what


def test_clock_skew_is_a_warning() -> None:
    found = check(PLAN, replace(GOOD, clock_skew_s=-90.0))
    assert [(one.rule, one.severity) for one in found] == [("preflight.clock", "warning")]


def test_all_faults_are_told_at_once() -> None:
    found = check(replace(PLAN, gpus_per_node=8), replace(GOOD, open_files=64, ip=None))
    assert len(found) == 3


HAVE = (
    Address("lo", "127.0.0.1"),
    Address("usb0", "169.254.3.1"),
    Address("eth0", "10.0.0.1"),
    Address("ib0", "10.1.0.1"),
)


@pytest.mark.parametrize(
    ("interface", "subnet", "reached", "chosen"),
    [
        ("", "", "10.1.0.1", "10.1.0.1"),
        ("", "", "169.254.3.1", None),
        ("eth0", "", "10.1.0.1", "10.0.0.1"),
        ("usb0", "", "10.1.0.1", None),
        ("nope", "", "10.1.0.1", None),
        ("", "10.1.0.0/16", "10.0.0.1", "10.1.0.1"),
        ("", "169.254.0.0/16", "10.0.0.1", None),
        ("eth0", "10.1.0.0/16", "10.0.0.1", None),
        ("", "10.0.0.0/8", "10.1.0.1", "10.1.0.1"),
    ],
)
def test_choice_of_address(interface: str, subnet: str, reached: str, chosen: str | None) -> None:
    assert network.choose(HAVE, interface, subnet, reached) == chosen


def test_own_addresses_hold_loopback() -> None:
    assert Address("lo", "127.0.0.1") in network.addresses()


def test_taken_port_is_not_free() -> None:
    with socket.socket() as sock:
        sock.bind(("", 0))
        sock.listen()
        port = sock.getsockname()[1]
        assert not network.port_free(port)
        assert port not in network.take_ports(port, port + 5, 3)


def test_ports_of_runs_that_start_at_once_are_distinct() -> None:
    """Nothing listens yet. What a run took is free again when it ends, however it ends.

    The ports are outside the ranges that runs of other tests take from.
    """
    text = "from jobspec.runtime.base.network import *; print(take_ports(18100, 18129, 10, 5)); input()"
    argv = [sys.executable, "-uc", text]
    runs = [
        subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) for _ in range(3)
    ]
    try:
        took = [json.loads(run.stdout.readline()) for run in runs if run.stdout is not None]
        assert sorted(port for ports in took for port in ports) == list(range(18100, 18130))
        assert network.take_ports(18100, 18129, 10) == []
    finally:
        for run in runs:
            run.kill()
            run.communicate()
    assert len(network.take_ports(18100, 18129, 30)) == 30


def test_waiting_time_is_no_clock_skew(tmp_path: Path) -> None:
    """A node that swept a terabyte, or whose threads had to wait, has the right time all the same."""
    run = make_run(tmp_path)
    who = from_environment(run.root, {"JOBSPEC_TOKEN": run.token, "JOBSPEC_ATTEMPT": "1"})
    asked = {"nonce": "00" * 16, "reached": "127.0.0.1", "time": 1000.0}  # long ago
    for arrived, skew in (({"arrived": 1000.5}, 0.5), ({}, 0.0)):
        node = Node(run.plan, who, {}, lambda message: None)
        assert node.preflight({**asked, **arrived})["facts"]["clock_skew_s"] == skew
        node.close()
