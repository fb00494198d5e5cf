"""Which node a line names as broken. A wrong node is the worst answer: most rows have none."""

from __future__ import annotations

from dataclasses import replace

import pytest

from jobspec.plan import CommandPlan, Plan
from jobspec.runtime.base.node_faults import Named, decide, of_findings, own_logs, scan
from jobspec.triage.signatures import load_signatures

NODES = {"n1": "10.0.0.1", "n2.site.org": "10.0.0.2", "n3": "10.0.0.3", "n4": "10.0.0.4"}
XID = "NVRM: Xid (PCI:0000:3b:00): 79, pid=4711, name=python3, GPU has fallen off the bus."
ECC = "RuntimeError: CUDA error: uncorrectable ECC error encountered"
PORT = "transport/net_ib.cc:93 NCCL WARN NET/IB : mlx5_2:1 Got async event : port error"


def named(text: str, own: str = "", nodes: dict[str, str] = NODES) -> list[tuple[str, str]]:
    lines = (line.encode() + b"\n" for line in text.splitlines())
    return [(one.node, one.kind) for one in scan(lines, "log", own, nodes)]


@pytest.mark.parametrize(
    ("line", "node"),
    [
        (f"Nov 28 01:02:03 n3 kernel: {XID}", "n3"),
        (f"2026-11-28T01:02:03.123+00:00 n3.site.org kernel: [12.3] {XID}", "n3"),
        (f"Nov 28 01:02:03 n2 kernel: {XID}", "n2.site.org"),
        (f"(Worker pid=71, ip=10.0.0.3) {ECC}", "n3"),
        (f"\x1b[36m(Worker pid=71, ip=10.0.0.3)\x1b[0m {ECC}", "n3"),
        ("n3:771:902 [0] misc/cuda.cc:1 NCCL WARN Cuda failure 'uncorrectable ECC error encountered'", "n3"),
        ("Unable to determine the device handle for GPU0000:3B:00.0: GPU is lost.  Reboot.", "n4"),
        (ECC, "n4"),
        (f"[rank3]: {ECC}", "n4"),
        ("  what():  CUDA error: uncorrectable NVLink error detected during the execution", "n4"),
    ],
)
def test_a_broken_gpu_is_of_the_node_that_the_line_or_else_its_own_log_names(line: str, node: str) -> None:
    assert named(line, own="n4") == [(node, "gpu")]


def test_only_what_is_said_on_the_spot_is_sure() -> None:
    """The kernel's log may be shown by a program long after, when the GPU has been reset."""
    lines = [
        f"Nov 28 01:02:03 n3 kernel: {XID}",
        ECC,
        f"n3:815:864 [0] {PORT}",
        "Error 802: system not yet init",
    ]
    found = [one for line in lines for one in scan([line.encode()], "log", "n4", NODES)]
    assert [(one.kind, one.sure) for one in found] == [
        ("gpu", False), ("gpu", True), ("fabric", False), ("gpu", False),
    ]  # fmt: skip


def test_a_port_and_a_mount_are_named() -> None:
    assert named(f"n3:815:864 [0] {PORT}") == [("n3", "fabric")]
    lost = "OSError: [Errno 108] Cannot send after transport endpoint shutdown: '/lustre/ckpt/step_8'"
    assert named(lost, own="n3") == [("n3", "mount")]
    gone = "OSError: [Errno 107] Transport endpoint is not connected: '/mnt/fuse/a'"
    assert named(gone, own="n3") == [("n3", "mount")]


@pytest.mark.parametrize(
    "line",
    [
        ECC,
        XID,
        f"Nov 28 01:02:03 n9 kernel: {XID}",
        f"(Worker pid=71, ip=10.0.0.77) {ECC}",
        f"(A pid=1, ip=10.0.0.2) ray::B.go() (pid=7, ip=10.0.0.3) {ECC}",
        f"(Worker pid=71, ip=10.0.0.3) {ECC} [repeated 5x across cluster]",
        f"n3x:771:902 [0] {PORT}",
        "(Controller pid=1, ip=10.0.0.2) worker 3 failed: CUDA error: uncorrectable ECC error encountered",
        "srun: error: n3: task 24: Exited with exit code 1",
        "*** JOB 12 ON n1 CANCELLED AT 2026-11-28T01:02:03 DUE TO NODE FAILURE, SEE SLURMCTLD LOG",
        "n1:5:6 [0] NCCL WARN NET/IB : Got completion from peer 10.0.0.3<4791> with status=12 opcode=0",
    ],
)
def test_no_node_is_named_where_the_line_names_none_of_the_run_or_several(line: str) -> None:
    assert named(line) == []


@pytest.mark.parametrize(
    "line",
    [
        "+ dmesg | grep 'NVRM: Xid (PCI:0000:3b:00): 79'",
        f"# {ECC}",
        f"412:        raise {ECC}",
        'if "CUDA error: uncorrectable ECC error" in str(problem):',
        "OSError: [Errno 116] Stale file handle: '/home/a/b'",
        "OSError: [Errno 107] Transport endpoint is not connected",
        "OSError: [Errno 5] Input/output error: '/lustre/a'",
        "NVRM: Xid (PCI:0000:3b:00): 31, pid=4711, name=python3, MMU Fault",
        "NVRM: Xid (PCI:0000:3b:00): 43, pid=4711, name=python3",
        "CUDA error: an illegal memory access was encountered",
        "CUDA out of memory. Tried to allocate 2.00 GiB",
    ],
)
def test_programs_set_ups_and_texts_about_faults_accuse_nobody(line: str) -> None:
    assert named(line, own="n3") == []


TOLD_ON = f"""\
(Runner pid=3, ip=10.0.0.2) Traceback (most recent call last):
(Runner pid=3, ip=10.0.0.2) ray.exceptions.RayTaskError: ray::Worker.step() (pid=71, ip=10.0.0.4, id=7)
(Runner pid=3, ip=10.0.0.2)   File "/w/a.py", line 7, in step
(Runner pid=3, ip=10.0.0.2) {ECC}
"""
GATHERED = f"""\
torch.distributed.checkpoint.api.CheckpointException: CheckpointException ranks:dict_keys([24])
Traceback (most recent call last): (RANK 24)
  File "/w/a.py", line 7, in step
{ECC}
"""


@pytest.mark.parametrize("text", [TOLD_ON, GATHERED])
def test_an_exception_that_is_told_on_names_nobody(text: str) -> None:
    """It was raised on another node than that of the process that prints it."""
    assert named(text, own="n2.site.org") == []
    assert named(text + f"n3:1:2 [0] {PORT}\n", own="n1") == [("n3", "fabric")]


def test_lines_of_hardware_are_those_that_triage_calls_a_broken_node() -> None:
    signature = next(item for item in load_signatures() if item.id == "gpu.bad-node")
    codes = range(1, 200)
    line = "n1 kernel: NVRM: Xid (PCI:0000:3b:00): {}, pid=1"
    assert [code for code in codes if named(line.format(code))] == [
        code for code in codes if signature.pattern.search(line.format(code))
    ]


def test_only_processes_of_one_node_write_a_log_without_ray_and_on_all_nodes() -> None:
    plan = Plan(
        "x", "command", "lab", "slurm", "srun", nodes=2, commands=(CommandPlan("a", ("x",), on="all"),)
    )
    assert own_logs(plan)
    assert not own_logs(replace(plan, mode="ray"))
    assert not own_logs(replace(plan, commands=(CommandPlan("a", ("x",)),)))
    assert own_logs(replace(plan, mode="ray", nodes=1))


def one(node: str, kind: str = "gpu", sure: bool = False, alone: bool = False, text: str = "") -> Named:
    return Named(node, kind, text, sure=sure, alone=alone)


def test_what_most_nodes_say_is_the_set_ups() -> None:
    assert decide([one("n1", alone=True)], 2) == [one("n1", alone=True)]
    assert decide([one("n1", alone=True), one("n2", alone=True)], 2) == []
    assert decide([one("n1", alone=True), one("n2", alone=True), one("n3", alone=True)], 8) == [
        one("n1", alone=True), one("n2", alone=True), one("n3", alone=True),
    ]  # fmt: skip
    assert decide([one("n1", sure=True), one("n2", sure=True)], 2) == []


def test_on_a_single_node_only_hardware_is_the_nodes() -> None:
    assert decide([one("n1", alone=True)], 1) == []
    assert decide([one("n1", sure=True)], 1) == [one("n1", sure=True)]


def test_the_surest_line_of_a_node_comes_first() -> None:
    first, sure = one("n3", "fabric", text="a"), one("n3", sure=True, text="b")
    assert decide([first, sure, one("n3", sure=True, text="c")], 4) == [sure]


def test_findings_that_were_made_on_a_node_name_it() -> None:
    rows = [
        ("preflight.shared-dir", "n3", "the run directory is not shared with this node"),
        ("preflight.gpus", "n2", "the node has 7 GPUs, the plan needs 8"),
        ("preflight.python", "n1", "Python 3.6"),
        ("preflight.gpus", "", "x"),
        ("node.lost", "n4", "node `n4` left"),
    ]
    assert [(item.node, item.kind) for item in of_findings(rows)] == [("n3", "mount"), ("n2", "gpu")]
