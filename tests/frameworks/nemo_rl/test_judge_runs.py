"""Runs of the stand-in checkout, healthy and broken, by the commands that jobspec makes for them.

Real bash, git and TensorBoard files; no agent around it (`test_nemo_rl_judge_chain.py` has one).
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from jobspec import frameworks
from jobspec.evidence.evidence import Attempt, CommandResult, Event, Evidence, LogFile, Results
from jobspec.frameworks.nemo_rl.levels import BY_NAME
from jobspec.judging.judge import judge
from jobspec.metrics import read_metrics
from jobspec.plan import Plan
from jobspec.triage import scan_files
from jobspec.verdict import Status, Verdict
from tests.kits.fake_nemo_rl import fake_bridge, fake_nemo_rl
from tests.kits.framework_kit import context, plan_of

IMPORT, RUN = "Local Bridge import in NeMo-RL", "NeMo-RL Megatron policy run"
VARIANTS, CAPTURE = "Requested variants", "Metrics/log capture"


@dataclass
class Runner:
    """One checkout; each run has a folder of its own, as an attempt has."""

    checkout: Path
    bridge: Path
    folder: Path
    path: str = ""

    def plan(self, variant: str, **spec: Any) -> Plan:
        repos = {"rl": str(self.checkout), "bridge": str(self.bridge)}
        chosen = BY_NAME[variant]
        nodes = {"nodes": chosen.nodes or 8, "exclusive": True}
        named = {"coverage": {"variants": [variant]}, "resources": nodes, **spec}
        asked = context("nemo_rl", chosen.level, repos=repos, gpus=chosen.gpus, **named)
        found = list(frameworks.get("nemo_rl").validate(asked))
        assert not [one for one in found if one.is_error], found
        return plan_of(asked)

    def run(self, variant: str, fault: str = "", **spec: Any) -> Evidence:
        plan = self.plan(variant, **spec)
        attempt = self.folder / "attempts/1"
        logs, metrics = attempt / "logs/n1", attempt / "metrics"
        logs.mkdir(parents=True)
        metrics.mkdir()
        results = []
        for command in plan.commands:
            env = {
                "PATH": f"{self.path}:{self.checkout}/bin:{Path(sys.executable).parent}:{os.environ['PATH']}",
                "HOME": str(self.folder),
                "PYTHONPATH": str(self.bridge / "src"),
                "JOBSPEC_ATTEMPT_DIR": str(attempt),
                "JOBSPEC_ATTEMPT": "1",
                "JOBSPEC_RUN_DIR": str(self.folder),
                "JOBSPEC_CHECKPOINT_DIR": str(self.folder / "checkpoints"),
                "JOBSPEC_METRICS_DIR": str(metrics),
                "FAKE_NEMO_RL_FAULT": fault,
            }
            argv = ["bash", "-eo", "pipefail", "-c", command.argv[0], command.name]
            log = logs / f"{command.name}.log"
            with log.open("w") as out:
                done = subprocess.run(argv, env=env, cwd=command.cwd, stdout=out, stderr=subprocess.STDOUT)
            relative = str(log.relative_to(self.folder))
            results.append(CommandResult(command.name, done.returncode, log=relative))
            if done.returncode:
                break
        return self._evidence(plan, results)

    def _evidence(self, plan: Plan, results: list[CommandResult]) -> Evidence:
        attempt = self.folder / "attempts/1"
        files = sorted(attempt.rglob("logs/n1/*.log"))
        names = [str(path.relative_to(self.folder)) for path in files]
        codes = [result.exit_code for result in results]
        outcome = "ok" if not any(codes) else "failed"
        ends = ("preflight", "driver")
        events = tuple(Event(time.time(), phase, "end", outcome="ok" if phase == "preflight" else outcome)
                       for phase in ends)  # fmt: skip
        starts = (Event(0.0, "driver", "start"),)
        found = Attempt(
            number=1,
            folder="attempts/1",
            events=(*starts, *events),
            results=Results(outcome, max(code or 0 for code in codes), commands=tuple(results)),
            logs=tuple(
                LogFile(name, "n1", path.stat().st_size) for name, path in zip(names, files, strict=True)
            ),
            metrics=read_metrics(attempt / "metrics", relative_to=self.folder),
            matches=tuple(scan_files([(path, name, "n1") for name, path in zip(names, files, strict=True)])),
        )
        return Evidence(self.folder, plan, attempts=(found,))


@pytest.fixture(scope="module")
def places(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    folder = tmp_path_factory.mktemp("nemo")
    return fake_nemo_rl(folder / "rl"), fake_bridge(folder / "bridge")


@pytest.fixture
def runner(places: tuple[Path, Path], tmp_path: Path) -> Runner:
    shutil.rmtree(places[0] / "results", ignore_errors=True)
    return Runner(*places, tmp_path)


def first_bad(verdict: Verdict) -> str:
    """The first deliverable that is required and did not pass."""
    bad = (item for item in verdict.deliverables if item.required and item.status not in GOOD)
    return next((item.name for item in bad), "")


GOOD = (Status.PASS, Status.NOT_REQUESTED)
# (variant, fault) -> (result, first deliverable that did not pass)
EXPECTED: Mapping[tuple[str, str], tuple[str, str]] = {
    ("colocated", ""): ("Pass", ""),
    ("colocated", "nan"): ("Fail", CAPTURE),
    ("colocated", "high-error"): ("Fail", "Run"),
    ("colocated", "zero-gradient"): ("Fail", CAPTURE),
    ("colocated", "dtensor"): ("Fail", RUN),
    ("colocated", "no-steps"): ("Fail", "Run"),
    ("colocated", "finished"): ("Fail", "Run"),
    ("colocated", "import-skipped"): ("Fail", "HF import"),
    ("colocated", "wrong-bridge"): ("Blocked", IMPORT),
    ("colocated", "disk-full"): ("Blocked", "Run"),
    ("colocated", "crash"): ("Blocked", "Run"),  # out of GPU memory
    ("non-colocated", ""): ("Pass", ""),
    ("tp2", ""): ("Pass", ""),
    ("megatron-generation", ""): ("Pass", ""),
    ("lora", ""): ("Pass", ""),
    ("lora", "no-adapter"): ("Fail", VARIANTS),
    ("lora", "unfinished-save"): ("Fail", "Checkpoint"),
    ("resume", ""): ("Pass", ""),
    ("lora-learning", ""): ("Pass", ""),
    ("lora-learning", "zero-gradient"): ("Fail", CAPTURE),
    ("lora-learning", "flat"): ("Fail", "Learning"),
    ("lora-async", ""): ("Pass", ""),
    ("sft-lora", ""): ("Pass", ""),
    ("dpo-lora", ""): ("Pass", ""),
    ("async-checkpoint", ""): ("Pass", ""),
    ("async-checkpoint", "dtensor"): ("Fail", RUN),
    ("reshard", ""): ("Pass", ""),
    ("draft", ""): ("Pass", ""),
    ("draft", "no-refit"): ("Fail", VARIANTS),
    ("distillation", ""): ("Pass", ""),
    ("vlm", ""): ("Pass", ""),
    ("tp2", "dropped-overrides"): ("Fail", VARIANTS),
    ("colocated", "no-metrics"): ("Fail", "Run"),
    ("colocated", "provider-error"): ("Fail", "Run"),
    ("data-plane-single-controller", ""): ("Pass", ""),
    ("r3", ""): ("Pass", ""),
    ("r3", "no-replay"): ("Fail", VARIANTS),
    ("r3-data-plane", "wrong-routes"): ("Fail", "Run"),
    ("data-plane-simple", ""): ("Pass", ""),
    ("data-plane-simple", "no-plane"): ("Fail", RUN),
    ("data-plane-simple", "no-transfer-queue"): ("Blocked", "Run"),
}


@pytest.fixture(scope="module")
def tally() -> Iterator[list[bool]]:
    """How many verdicts were as expected; printed at the end (`pytest -s`)."""
    found: list[bool] = []
    yield found
    print(f"\nNeMo-RL stand-in runs: {sum(found)} of {len(found)} verdicts as expected")


@pytest.mark.parametrize(("variant", "fault"), EXPECTED, ids=lambda text: text or "healthy")
def test_verdict_of_a_run(runner: Runner, tally: list[bool], variant: str, fault: str) -> None:
    verdict = judge(runner.run(variant, fault))
    told = "\n".join(f"{item.status}: {item.name}: {item.reason}" for item in verdict.deliverables)
    tally.append((str(verdict.result), first_bad(verdict)) == EXPECTED[variant, fault])
    assert (str(verdict.result), first_bad(verdict)) == EXPECTED[variant, fault], told


def test_script_that_the_maintainers_skip_is_skipped(runner: Runner) -> None:
    """Nothing ran, so nothing passes, and nothing is held against the checkout either."""
    tools = runner.folder / "tools"
    tools.mkdir()
    (tools / "nvidia-smi").write_text("#!/bin/sh\necho 10.0\n")
    (tools / "nvidia-smi").chmod(0o755)
    verdict = judge(replace(runner, path=str(tools)).run("megatron-generation"))
    told = {item.name: item.status for item in verdict.deliverables}
    assert (told[RUN], told[VARIANTS], told[CAPTURE]) == (Status.BLOCKED, Status.SKIPPED, Status.SKIPPED)
    assert (verdict.result, "10.0" in verdict.reason) == ("Blocked", True)


def test_leftover_of_another_run_blocks(runner: Runner) -> None:
    (runner.folder / f"checkpoints/{runner.folder.name}/attempt-1/lora/step_9").mkdir(parents=True)
    verdict = judge(runner.run("lora"))
    assert verdict.result == "Blocked"
    assert verdict.first_cause is not None
    assert verdict.first_cause.text.startswith("jobspec: blocked:")
