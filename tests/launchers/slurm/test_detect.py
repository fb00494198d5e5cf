"""A proposed site profile from recorded texts, and the judgement of what nodes answered."""

from __future__ import annotations

import socket
import threading
from pathlib import Path
from typing import Any

import pytest

from jobspec.finding import JobspecError
from jobspec.launchers.function_jobs.site_check import judge_node
from jobspec.launchers.reach import Reach, reach
from jobspec.launchers.slurm.detect import detect, parse_sinfo, profile_text
from jobspec.spec.find_site import parse_cluster
from jobspec.spec.site import ClusterProfile
from tests.launchers.slurm.fake_client import FakeClient, says

SINFO = """\
main|infinite|4|16|64000|gpu:8|up
low|1-00:00:00|2|16+|64000+|gpu:h100:8(S:0-1)|up
low|1-00:00:00|2|8|32000|gpu:h100:4(S:0-1)|up
cpu|4:00:00|10|64|256000|(null)|up
"""
ONLINE = Reach(True, "api.wandb.ai is reached from here")
CONFIG = """\
MaxArraySize            = 2001
ProctrackType           = proctrack/linuxproc
AccountingStorageType   = (null)
"""


def client(
    sinfo: str = SINFO,
    default: str = "main*\nlow\n",
    srun: str = "--container-image=[USER@]…",
    config: str = CONFIG,
) -> FakeClient:
    return FakeClient(sinfo=[says(sinfo), says(default)], scontrol=[says(config)], srun=[says(srun)])


@pytest.mark.parametrize(
    ("gres", "gpus"),
    [
        ("gpu:8", 8),
        ("gpu:h100:4(S:0-1)", 4),
        ("gpu:a:2,gpu:b:3", 5),
        ("gpu:nvidia_h100_80gb:8", 8),
        ("gpu:4090:8", 8),
        ("(null)", 0),
        ("mps:100", 0),
    ],
)
def test_gpus_are_counted(gres: str, gpus: int) -> None:
    assert parse_sinfo(f"p|1:00:00|1|1|1|{gres}|up", "p")[0].gpus == gpus


def test_unlike_nodes_are_described_by_the_smallest() -> None:
    low = parse_sinfo(SINFO, "main")[1]
    assert (low.nodes, low.cpus, low.memory_mb, low.gpus) == (4, 8, 32000, 4)


@pytest.mark.parametrize("partition", ["", "low", "cpu"])
def test_proposal_is_a_valid_profile(partition: str) -> None:
    text = profile_text(detect(client(), ONLINE, partition), "site")
    profile = parse_cluster(text, Path("site.yaml")).profile
    assert profile.slurm.partition == (partition or "main")
    assert profile.container.runtime == "pyxis"
    assert profile.limits.max_array == 2000  # the largest index
    assert profile.slurm.gpus == ("none" if partition == "cpu" else "gres")
    assert "linuxproc" in text
    assert "no accounting database" in text


MIXED = """\
mixed|1-00:00:00|4|64|512000|gpu:h100:8(S:0-1)|up
mixed|1-00:00:00|2|32|256000|gpu:nvidia_a100_1g.10gb:7,gpu:3g.40gb:2|up
mixed|1-00:00:00|1|8|16000|(null)|up
"""


def test_nodes_with_whole_gpus_are_what_a_profile_is_for() -> None:
    """Seven slices and no GPU at all are no smaller nodes of the same kind."""
    found = detect(client(MIXED, "mixed*\n"), ONLINE)
    part = found.partition
    assert (part.nodes, part.cpus, part.memory_mb, part.gpus) == (4, 64, 512000, 8)
    unlike, least, slices = [
        note for note in found.notes if "linuxproc" not in note and "database" not in note
    ]
    assert unlike == (
        "the nodes are unlike: 4 with 64 CPUs, 512000 MB, gpu:h100:8; 2 with 32 CPUs, 256000 MB, "
        "gpu:nvidia_a100_1g.10gb:7,gpu:3g.40gb:2; 1 with 8 CPUs, 16000 MB, no GPU"
    )
    assert least.endswith("with whole GPUs; keep jobs off the others by `slurm.constraint: FEATURE`")
    assert "NCCL does not work between them" in slices
    text = profile_text(found, "site")
    assert parse_cluster(text, Path("site.yaml")).profile.limits.max_nodes == 4
    assert f"# note: {unlike}\n" in text


def test_partition_of_slices_counts_them_and_says_so() -> None:
    found = detect(client("mig|1:00:00|2|32|256000|gpu:1g.10gb:7|up\n", "mig*\n"), ONLINE)
    assert found.partition.gpus == 7
    assert any("slices of GPUs (MIG)" in note for note in found.notes)
    assert not any("unlike" in note for note in found.notes)


def test_unlike_nodes_are_asked_for_one_by_one() -> None:
    """sinfo joins nodes of several sizes to `16+` otherwise."""
    asked = client()
    detect(asked, ONLINE)
    assert "--exact" in asked.calls[0]


def test_cluster_without_arrays_proposes_no_size_of_one() -> None:
    off = client(config="MaxArraySize = 0\n")
    assert "max_array" not in profile_text(detect(off, ONLINE), "site")


def test_cluster_without_pyxis_is_proposed_without() -> None:
    assert not detect(client(srun="usage: srun"), ONLINE).pyxis


def test_unknown_partition_names_those_there_are() -> None:
    with pytest.raises(JobspecError) as caught:
        detect(client(), ONLINE, "nosuch")
    assert "main, low, cpu" in caught.value.findings[0].why


def test_no_slurm_is_a_finding() -> None:
    silent = FakeClient(
        sinfo=[says(stderr="sinfo: fatal: Could not establish a configuration source", code=1)]
    )
    with pytest.raises(JobspecError) as caught:
        detect(silent, ONLINE)
    assert "SLURM_CONF" in caught.value.findings[0].fix


GOOD: dict[str, Any] = {
    "host": "n1", "python": "3.11.7", "cpus": 16, "gpus": 8, "canary": True, "node_local_problem": "",
    "node_local_free": 10**12, "hf_home": True, "container": [],
}  # fmt: skip


@pytest.mark.parametrize(
    ("changed", "rule"),
    [
        ({}, ""),
        ({"canary": False}, "check.not-shared"),
        ({"node_local_problem": "Permission denied"}, "check.node-local"),
        ({"node_local_free": 10**6}, "check.node-local-full"),
        ({"hf_home": False}, "check.hf-home"),
        ({"gpus": 4}, "check.gpus"),
        ({"cpus": 2}, "check.cpus"),
        ({"internet": {"reached": True, "why": ""}}, ""),
        ({"internet": {"reached": None, "why": "a proxy"}}, ""),
        ({"internet": {"reached": False, "why": "nothing answers"}}, "check.internet"),
    ],
)
def test_each_difference_has_its_finding(changed: dict[str, Any], rule: str) -> None:
    from jobspec.spec.site import Node

    profile = ClusterProfile(version=1, name="site", node=Node(cpus=16, gpus=8))
    found = [finding.rule for finding in judge_node(profile, {**GOOD, **changed})]
    assert found == ([rule] if rule else [])


def test_kinds_of_gpus_get_their_names() -> None:
    two = (
        "mixed|infinite|4|192|1900000|gpu:h200:8(S:0-1)|up\nmixed|infinite|2|64|512000|gpu:a100:4,nvme:1|up\n"
    )
    text = profile_text(detect(client(two, "mixed*\n"), ONLINE), "site")
    kinds = parse_cluster(text, Path("site.yaml")).profile.slurm.gpu_types
    assert {name: kind.gres for name, kind in kinds.items()} == {"a100": "a100", "h200": "h200"}
    node = kinds["h200"].node
    assert node is not None
    assert (node.cpus, node.memory, node.gpus) == (192, "1900000M", 8)
    assert "gpu_types" not in profile_text(detect(client(), ONLINE), "site")


def test_whole_nodes_are_not_asked_for_gpus() -> None:
    """A step that asks for them is refused there, as was seen with Slurm 22.05."""
    detected = detect(client(config=CONFIG + "SelectType              = select/linear\n"), ONLINE)
    assert any("select/linear" in note for note in detected.notes)
    profile = parse_cluster(profile_text(detected, "x"), Path("x.yaml")).profile
    assert (profile.slurm.gpus, profile.node.gpus) == ("none", 8)


# -- the internet -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("found", "internet", "said"),
    [
        (ONLINE, True, "# internet: false   # set where compute nodes have none: api.wandb.ai is reached"),
        (Reach(False, "nothing here reaches it"), False, "internet: false   # set: nothing here reaches it"),
        (Reach(None, "`https_proxy` is set here"), True, "none: `https_proxy` is set here, without it"),
    ],
)
def test_proposal_says_what_is_known_of_the_internet(found: Reach, internet: bool, said: str) -> None:
    text = profile_text(detect(client(), found), "site")
    assert parse_cluster(text, Path("site.yaml")).profile.network.internet is internet
    assert said in text


def test_one_host_that_answers_is_enough() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server, socket.create_server(("127.0.0.1", 0)) as gone:
        port, closed = server.getsockname()[1], gone.getsockname()[1]
        gone.close()
        found = reach({}, [("127.0.0.1", closed), ("127.0.0.1", port)], 60)
        assert (found.reached, found.why) == (True, "127.0.0.1 is reached from here")
        assert reach({}, [("127.0.0.1", closed)], 60).reached is False
        assert reach({"https_proxy": "http://proxy:1"}, [("127.0.0.1", port)]).reached is None


def test_a_lookup_that_hangs_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    """The resolver of a node without a network waits for minutes."""
    over = threading.Event()
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: over.wait() and [])
    try:
        assert reach({}, wait_s=0.1).reached is False
    finally:
        over.set()


@pytest.mark.parametrize(
    ("version", "parameters", "expedite"),
    [
        ("25.11.2", "cloud_dns,enable_expedited_requeue", True),
        ("26.05.0", "enable_expedited_requeue", True),
        ("25.11.2", "cloud_dns", False),
        ("25.05.4", "enable_expedited_requeue", False),
        ("22.05.8", "(null)", False),
        ("", "enable_expedited_requeue", False),
    ],
)
def test_expedited_requeue_is_proposed_where_slurm_takes_it(
    version: str, parameters: str, expedite: bool
) -> None:
    config = f"{CONFIG}SLURM_VERSION           = {version}\nSlurmctldParameters     = {parameters}\n"
    text = profile_text(detect(client(config=config), ONLINE), "site")
    assert parse_cluster(text, Path("site.yaml")).profile.slurm.requeue == (
        "expedite" if expedite else "plain"
    )
