"""Another Core beside the right Bridge, in a run that jobspec planned."""

from __future__ import annotations

from pathlib import Path

import pytest

from jobspec.evidence.evidence import Attempt, Evidence, LogFile, Results
from jobspec.frameworks.shared.bridge_import import judge_import
from jobspec.plan import HelpersPlan, ImportProof, Plan, RepoPlan
from jobspec.verdict import Status

BRIDGE = "/src/bridge"
OWN, IMAGES = f"{BRIDGE}/3rdparty/Megatron-LM", "/workspace/Megatron-LM"


def judged(
    folder: Path, core: str, pythonpath: tuple[str, ...], helpers: HelpersPlan | None = None
) -> Status:
    (folder / "train.log").write_text(
        f"(W pid=1) megatron.bridge {BRIDGE}/src/megatron/bridge/__init__.py\n"
        f"(W pid=1) megatron.core {core}/megatron/core/__init__.py\n"
    )
    plan = Plan(
        "x", "verl", "c", "local", "ray", helpers=helpers,
        repos=(RepoPlan("bridge", BRIDGE, pythonpath=pythonpath),),
        proofs=(ImportProof("megatron.bridge", BRIDGE),),
    )  # fmt: skip
    imports = {"megatron.bridge": {"n1": f"{BRIDGE}/src/megatron/bridge/__init__.py"}}
    attempt = Attempt(
        1, "attempts/1", results=Results("ok", imports=imports), logs=(LogFile("train.log", "n1", 1),)
    )
    return judge_import(Evidence(folder, plan, attempts=(attempt,)), "verl").status


@pytest.mark.parametrize(
    ("core", "asked", "status"),
    [
        (OWN, (OWN,), Status.PASS),
        (IMAGES, (OWN,), Status.BLOCKED),
        ("/tmp/u/Megatron-LM", ("/tmp/u/Megatron-LM",), Status.PASS),
        (IMAGES, (), Status.PASS),  # `verl.megatron-lm` warned of it, and the report has a limitation
    ],
)
def test_core_is_the_one_that_the_spec_puts_on_the_path(
    tmp_path: Path, core: str, asked: tuple[str, ...], status: Status
) -> None:
    assert judged(tmp_path, core, (f"{BRIDGE}/src", *asked)) is status


def test_core_whose_helpers_were_built_may_be_a_copy(tmp_path: Path) -> None:
    assert judged(tmp_path, "/node/helpers/1", (OWN,), HelpersPlan(source=OWN)) is Status.PASS
