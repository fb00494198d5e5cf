"""A proposed site profile from recorded texts, and the judgement of what nodes answered."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from jobspec.finding import JobspecError
from jobspec.launchers.function_jobs.site_check import judge_node
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
CONFIG = """\
MaxArraySize            = 2001
ProctrackType           = proctrack/linuxproc
AccountingStorageType   = (null)
"""


def client(
    sinfo: str = SINFO, default: str = "main*\nlow\n", srun: str = "--container-image=[USER@]…"
) -> FakeClient:
    return FakeClient(sinfo=[says(sinfo), says(default)], scontrol=[says(CONFIG)], srun=[says(srun)])


@pytest.mark.parametrize(
    ("gres", "gpus"),
    [
        ("gpu:8", 8),
        ("gpu:h100:4(S:0-1)", 4),
        ("gpu:a:2,gpu:b:3", 5),
        ("gpu:nvidia_h100_80gb:8", 8),
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
    text = profile_text(detect(client(), partition), "site")
    profile = parse_cluster(text, Path("site.yaml")).profile
    assert profile.slurm.partition == (partition or "main")
    assert profile.container.runtime == "pyxis"
    assert profile.limits.max_array == 2001
    assert profile.slurm.gpus == ("none" if partition == "cpu" else "gres")
    assert "linuxproc" in text
    assert "no accounting database" in text


def test_cluster_without_pyxis_is_proposed_without() -> None:
    assert not detect(client(srun="usage: srun")).pyxis


def test_unknown_partition_names_those_there_are() -> None:
    with pytest.raises(JobspecError) as caught:
        detect(client(), "nosuch")
    assert "main, low, cpu" in caught.value.findings[0].why


def test_no_slurm_is_a_finding() -> None:
    silent = FakeClient(
        sinfo=[says(stderr="sinfo: fatal: Could not establish a configuration source", code=1)]
    )
    with pytest.raises(JobspecError) as caught:
        detect(silent)
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
    ],
)
def test_each_difference_has_its_finding(changed: dict[str, Any], rule: str) -> None:
    from jobspec.spec.site import Node

    profile = ClusterProfile(version=1, name="site", node=Node(cpus=16, gpus=8))
    found = [finding.rule for finding in judge_node(profile, {**GOOD, **changed})]
    assert found == ([rule] if rule else [])
