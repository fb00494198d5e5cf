"""What the stand-in for verl prints and writes, healthy and broken, and what is concluded from it.

Each case runs the adapter's own commands in real bash over the stand-in's script, then judges the folder as
files of another maker. The table is the specification; its accuracy is printed (`pytest -s`).
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from jobspec import frameworks
from jobspec.judging.foreign_run import expected, judge_files
from jobspec.verdict import Result, Verdict
from tests.kits.fake_verl import make_bridge, make_checkout
from tests.kits.verl_kit import context, plan_of

PASS, FAIL, BLOCKED = Result.PASS, Result.FAIL, Result.BLOCKED
EXAMPLES = Path(__file__).parents[3] / "examples"
BRIDGE = "/src/Megatron-Bridge"  # as the stand-in's tracebacks have it
MOE = {"FAKE_VERL_EXPERTS": "60"}
MOE_SIZES = {"coverage": {"variants": ["moe"]}}
DENSE = {"coverage": {"variants": ["dense"]}}
R3 = {"coverage": {"variants": ["router-replay-r3"]}}


@dataclass(frozen=True)
class Case:
    """A run of the stand-in and its verdict. `part` of the decisive reason or cause."""

    level: str
    fault: str
    result: Result
    part: str = ""
    release: str = "0.9.0"
    spec: Mapping[str, Any] = field(default_factory=dict)
    env: Mapping[str, str] = field(default_factory=dict)

    @property
    def name(self) -> str:
        variants = "+".join(self.spec.get("coverage", {}).get("variants", ()))
        return "-".join(
            part for part in (self.level, variants, self.fault or "healthy", self.release) if part
        )


CASES = (
    # healthy, every level and both trainers
    *(Case("smoke", "", PASS, release=release) for release in ("0.7.0", "0.7.1", "0.8.0", "0.9.0", "main")),
    *(Case("checkpoint", "", PASS, release=release) for release in ("0.7.1", "0.8.0", "0.9.0")),
    Case("checkpoint", "", PASS, spec={"coverage": {"variants": ["full"]}}),
    Case("parallel", "", PASS, spec=DENSE),
    Case("parallel", "", PASS, spec=MOE_SIZES, env=MOE),
    Case("fsdp", "", PASS),
    Case("architecture", "", PASS, spec=R3, env=MOE),
    Case("architecture", "", PASS, spec={"coverage": {"variants": ["mtp"]}}),
    Case("architecture", "", PASS, spec={"coverage": {"variants": ["moe-model"]}}, env=MOE),
    Case(
        "smoke",
        "",
        PASS,
        spec={
            "coverage": {"variants": ["dummy"]},
            "train": {"overrides": {"DUMMY_MODEL_CONFIG_PATH": "dummy.json"}},
        },
    ),
    # the second process must go on with the random weights of the first
    Case(
        "checkpoint",
        "",
        PASS,
        spec={
            "coverage": {"variants": ["dummy"]},
            "train": {"overrides": {"DUMMY_MODEL_CONFIG_PATH": "dummy.json"}},
        },
    ),
    Case("learning", "", PASS),
    Case("learning", "", PASS, release="0.8.0"),
    # trained, but not what was asked
    Case("smoke", "vanilla", BLOCKED, "`vanilla_mbridge` is True"),
    Case("smoke", "fsdp-engine", BLOCKED, "an engine other than Megatron"),
    Case("smoke", "frozen", FAIL, "no trainable parameter"),
    Case("smoke", "nan", FAIL, "`actor/grad_norm` of step 1"),
    Case("smoke", "no-step", BLOCKED, "no line and no record"),
    Case("smoke", "validation-only", BLOCKED, "no line and no record"),
    Case("learning", "early-end", BLOCKED, "step 20 is the first missing"),
    Case("parallel", "sizes", FAIL, "every size that is shown is 1", spec=MOE_SIZES),
    Case("fsdp", "ddp", FAIL, "the run used DDP"),
    Case("architecture", "no-replay", FAIL, "router_replay.mode` is disabled", spec=R3),
    # save and resume
    Case("checkpoint", "scratch", FAIL, "from scratch"),
    Case("checkpoint", "no-tracker", FAIL, "latest_checkpointed_iteration.txt"),
    Case("checkpoint", "no-manifest", FAIL, "its save was cut off"),
    Case("checkpoint", "no-optimizer", BLOCKED, "critic optimizer"),
    Case("checkpoint", "no-adapter", FAIL, "no adapter checkpoint", release="0.7.1"),
    Case("checkpoint", "finished", FAIL, "trained no further step"),
    Case("checkpoint", "modelopt", BLOCKED, "modelopt"),
    # learning
    Case("learning", "flat", FAIL, "critic/rewards/mean"),
    Case("learning", "constant", FAIL, "critic/rewards/mean"),
    Case("learning", "zero-grad", FAIL, "actor/grad_norm"),
    Case("learning", "zero-kl", FAIL, "actor/kl_loss"),
    Case("learning", "inf", FAIL, "`actor/pg_loss` of step 20"),
    # outside of what is tested
    Case("smoke", "rocr", BLOCKED, "ROCR_VISIBLE_DEVICES"),
    Case("smoke", "gpus", BLOCKED, "Total available GPUs"),
    Case("smoke", "disk", BLOCKED, "No space left"),
    Case("smoke", "no-bridge", BLOCKED, "Megatron-Bridge"),
    Case("smoke", "no-transfer-queue", BLOCKED, "transfer_queue"),
    Case("smoke", "rollout", BLOCKED, "Engine core initialization failed"),
    # inside the Bridge
    Case("smoke", "provider", FAIL, "num_query_groups"),
    Case("smoke", "mapping", FAIL, "linear_qkv"),
)


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("data")
    maker = [sys.executable, str(EXAMPLES / "make_tiny_gsm8k.py"), str(folder)]
    subprocess.run(maker, check=True, capture_output=True)
    return folder


@pytest.fixture(scope="module")
def checkouts(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, str]]:
    root = tmp_path_factory.mktemp("checkouts")
    bridge = str(make_bridge(root / "bridge"))
    return {
        release: {"verl": str(make_checkout(root / release, release)), "bridge": bridge}
        for release in ("0.7.0", "0.7.1", "0.8.0", "0.9.0", "main")
    }


def run_case(case: Case, root: Path, repos: Mapping[str, str], data: Path) -> list[int]:
    """Run the adapter's commands as the runtime would, less the probe; exit codes."""
    plan = plan_of(context(case.level, gpus=4, repos=repos, **case.spec))
    (root / "metrics").mkdir()
    env = {
        "PATH": f"{Path(sys.executable).parent}:/usr/bin:/bin",
        "HOME": str(root),
        "PYTHONPATH": "/src/bridge/src",
        "JOBSPEC_RUN_DIR": str(root),
        "JOBSPEC_ATTEMPT": "1",
        "JOBSPEC_ATTEMPT_DIR": str(root),
        "JOBSPEC_METRICS_DIR": str(root / "metrics"),
        "JOBSPEC_CHECKPOINT_DIR": str(root / "checkpoints"),
        "JOBSPEC_MODEL_PATH": "/models/tiny",
        "JOBSPEC_DATA_GSM8K": str(data),
        "FAKE_VERL_FAULT": case.fault,
        **case.env,
    }
    (root / "worker.log").write_text(f"(WorkerDict pid=1) {BRIDGE}/src/megatron/bridge/__init__.py\n")
    codes = []
    for command in plan.commands:
        if command.name == "probe":
            continue
        argv = ["bash", "-eo", "pipefail", "-c", command.argv[0]]
        with (root / f"{command.name}.log").open("wb") as log:
            done = subprocess.run(argv, cwd=command.cwd, env=env, stdout=log, stderr=subprocess.STDOUT)
        codes.append(done.returncode)
        if done.returncode:
            break
    return codes


def judge(case: Case, root: Path) -> Verdict:
    verl = frameworks.get("verl")
    variants = tuple(case.spec.get("coverage", {}).get("variants", ()))
    steps = {"checkpoint": 2, "learning": 20}.get(case.level, 1)
    wanted = expected(verl, case.level, variants, steps, (), "", (f"megatron.bridge={BRIDGE}",))
    return judge_files(root, wanted)[1]


@pytest.fixture(scope="module")
def judged(
    tmp_path_factory: pytest.TempPathFactory, checkouts: dict[str, dict[str, str]], data: Path
) -> dict[str, tuple[Verdict, list[int], Path]]:
    """Verdicts of all cases, run two at a time, and their accuracy on standard output."""
    from concurrent.futures import ThreadPoolExecutor

    def one(case: Case) -> tuple[Verdict, list[int], Path]:
        root = tmp_path_factory.mktemp("run")
        codes = run_case(case, root, checkouts[case.release], data)
        return judge(case, root), codes, root

    with ThreadPoolExecutor(os.cpu_count() or 1) as pool:
        found = dict(zip((case.name for case in CASES), pool.map(one, CASES), strict=True))
    right = sum(found[case.name][0].result is case.result for case in CASES)
    print(f"\nstand-in runs judged as expected: {right} of {len(CASES)}")
    for case in CASES:
        if found[case.name][0].result is not case.result:
            print(f"  {case.name}: {found[case.name][0].result}, expected {case.result}")
    return found


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_verdict_of_a_run(case: Case, judged: dict[str, tuple[Verdict, list[int], Path]]) -> None:
    verdict, codes, root = judged[case.name]
    log = "".join(path.read_text() for path in sorted(root.glob("*.log")))[-1500:]
    told = [f"{item.name}: {item.status} {item.reason}" for item in verdict.deliverables]
    assert verdict.result is case.result, (verdict.reason, verdict.first_cause, told, codes, log)
    cause = verdict.first_cause
    words = f"{verdict.reason} {cause.text if cause else ''}"
    assert case.part in words
    assert (cause is None) is (case.result is PASS)
