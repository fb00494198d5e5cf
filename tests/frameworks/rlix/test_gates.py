"""Level `gates`: each of RLix's own tests is started by itself, and one that skips itself does not pass."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from jobspec import frameworks
from jobspec.evidence.evidence import Attempt, Evidence, LogFile
from jobspec.frameworks.rlix.gates import GATES
from jobspec.verdict import Deliverable, Status
from tests.kits.framework_kit import context, findings, plan_of

P, F, B = Status.PASS, Status.FAIL, Status.BLOCKED
LAUNCHER = """\
import subprocess, sys
processes = sys.argv[-2].partition("=")[2]
sys.exit(subprocess.run([sys.executable, sys.argv[-1], processes]).returncode)
"""
PASSES = 'print("[rank0] {passed} (3 steps)")'
TROUBLES: list[tuple[str, Status, str]] = [
    ('print("[rank0] SKIP: requires 4 GPUs (got 2)")', B, "skipped itself: requires 4 GPUs (got 2)"),
    ('print("[rank1] FAIL: VRAM grew"); sys.exit(1)', F, "VRAM grew"),
    ("import megatron_that_nobody_has.core", B, "Python has no `megatron_that_nobody_has`"),
    ('raise RuntimeError("NCCL")', F, "RuntimeError: NCCL"),
    ("sys.exit(7)", F, "ended with exit code 7"),
    ("pass", F, "jobspec found no line"),
]


def run(folder: Path, **bodies: str) -> dict[str, Deliverable]:
    """The level's command over stand-ins of the tests, started by a stand-in of PyTorch's launcher."""
    for gate in GATES:
        file = folder / gate.file
        file.parent.mkdir(parents=True, exist_ok=True)
        body = bodies.get(gate.name, PASSES).format(passed=gate.passed)
        file.write_text(f"import sys\nassert sys.argv[1] == '{gate.processes}'\n{body}\n")
    torch = folder / "torch/distributed"
    torch.mkdir(parents=True)
    for path in (torch.parent / "__init__.py", torch / "__init__.py"):
        path.write_text("")
    (torch / "run.py").write_text(LAUNCHER)
    asked = plan_of(context("rlix", "gates", container={"image": "x/y:1", "python": sys.executable}))
    done = subprocess.run(
        ["bash", "-eo", "pipefail", "-c", asked.commands[0].argv[0]], cwd=folder, text=True, check=False,
        env={**os.environ, "PYTHONPATH": str(folder)}, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
    )  # fmt: skip
    (folder / "gates.log").write_text(done.stdout)
    attempt = Attempt(1, "attempts/1", logs=(LogFile("gates.log", "n1", 1),))
    evidence = Evidence(folder, replace(asked, name="x"), attempts=(attempt,))
    return {item.name: item for item in frameworks.get("rlix").judge(evidence)}


def test_every_part_passes_by_its_own_line(tmp_path: Path) -> None:
    assert [item.status for item in run(tmp_path).values()] == [P, P, P]


@pytest.mark.parametrize(("body", "status", "reason"), TROUBLES)
def test_a_part_that_does_not_pass_hides_no_other(
    tmp_path: Path, body: str, status: Status, reason: str
) -> None:
    first, second, third = run(tmp_path, selective_sync=body).values()
    assert (first.status, second.status, third.status) == (P, status, P)
    assert reason in second.reason


def test_own_script_of_rlix_is_read_too(tmp_path: Path) -> None:
    """What `run_gate2_5.sh` leaves on two GPUs proves one part of three."""
    (tmp_path / "gates.log").write_text(
        f"Part 1: Megatron NCCL\n[rank0] {GATES[0].passed}\nPart 1: DONE\n"
        "[rank0] SKIP: requires 4 GPUs\nSKIP Part 3: requires 4 GPUs (found 2)\nALL GATE 2.5 TESTS COMPLETE\n"
    )
    attempt = Attempt(1, "attempts/1", logs=(LogFile("gates.log", "n1", 1),))
    asked = plan_of(context("rlix", "gates"))
    found = frameworks.get("rlix").judge(Evidence(tmp_path, asked, attempts=(attempt,), foreign=True))
    assert [item.status for item in found] == [P, B, B]


def test_sizes_and_files_are_asked_for(tmp_path: Path) -> None:
    def told(**spec: Any) -> set[tuple[str, str]]:
        return {(item.rule, item.severity) for item in findings("rlix", "gates", **spec)}

    assert told() == set()
    assert told(model={"id": "Qwen/Qwen3-8B"}) == {("rlix.gates", "warning")}
    (tmp_path / "rlix/pipeline").mkdir(parents=True)
    lacks = findings("rlix", "gates", repos={"rlix": str(tmp_path)})
    assert [item.what for item in lacks] == [f"the RLix checkout has no `{GATES[0].file}`"]
    assert told(resources={"nodes": 2}) == {("rlix.gates", "error")}
    assert told(gpus=2) == {("rlix.gates", "error")}
    assert {item.rule for item in findings("rlix", "gates", repos={})} == {"rlix.checkout"}
