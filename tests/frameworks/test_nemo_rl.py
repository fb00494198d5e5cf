"""NeMo-RL on stand-ins: fake checkouts, and logs in the real format. No GPU, no training."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from framework_kit import context, findings, make_fake_nemo_rl, plan_of, rules

from jobspec import frameworks
from jobspec.evidence import Attempt, Evidence, LogFile
from jobspec.frameworks.nemo_rl.levels import VARIANTS
from jobspec.metrics import Row, Table
from jobspec.verdict import Status

LOG = """\
🚀 Running synchronous GRPO training (legacy)
\x1b[36m(MegatronPolicyWorker pid=1)\x1b[0m Using default megatron checkpoint dir: /r/hf-import
\x1b[36m(MegatronPolicyWorker[rank=0] pid=1)\x1b[0m Model, optimizer, and learning rate scheduler built
│ PASS   │ max(data["train/token_mult_prob_error"]) < 1.05 │ 1.01 │ │
"""


def judged(tmp_path: Path, log: str = LOG, last: float = 0.1, steps: int = 2) -> dict[str, Status]:
    (tmp_path / "colocated.log").write_text(log)
    source = "attempts/1/metrics/colocated/metrics.json"
    rows = [
        Row("train/loss", step, last if step == steps else 0.2, None, source) for step in range(1, steps + 1)
    ]
    logs = (LogFile("colocated.log", "n1", len(log)),)
    attempt = Attempt(1, "attempts/1", logs=logs, metrics=Table(tuple(rows)))
    evidence = Evidence(tmp_path, plan_of(context("nemo_rl")), attempts=(attempt,))
    return {item.name: item.status for item in frameworks.get("nemo_rl").judge(evidence)}


def test_healthy_smoke_run_passes(tmp_path: Path) -> None:
    found = judged(tmp_path)
    assert {name for name, status in found.items() if status is Status.PASS} == {
        "Policy run", "Requested variants", "Metrics and logs", "HF import",
    }  # fmt: skip
    assert found["Local Bridge import"] is Status.NOT_REQUESTED


@pytest.mark.parametrize(
    ("log", "failed"),
    [
        (LOG.replace("MegatronPolicyWorker", "DTensorPolicyWorkerV2"), "Policy run"),
        (LOG.replace("synchronous", "async"), "Policy run"),
        (LOG.replace("PASS", "FAIL"), "Policy run"),
        (LOG.replace("/hf-import", "/shared"), "HF import"),
        ("Checkpoint already exists at /x. Skipping import.\n" + LOG, "HF import"),
    ],
)
def test_what_is_not_shown_is_not_claimed(tmp_path: Path, log: str, failed: str) -> None:
    assert judged(tmp_path, log)[failed] is Status.FAIL


def test_nan_and_missing_step_fail(tmp_path: Path) -> None:
    assert judged(tmp_path, last=float("nan"))["Metrics and logs"] is Status.FAIL
    assert judged(tmp_path, steps=1)["Policy run"] is Status.FAIL


def test_checkout_that_lacks_something_is_refused(tmp_path: Path) -> None:
    make_fake_nemo_rl(tmp_path)
    repos = {"rl": str(tmp_path)}
    (tmp_path / "tests/functional/grpo_megatron.sh").write_text("true\n")
    (tmp_path / "tests/functional/grpo_megatron_lora.sh").unlink()
    (tmp_path / "results/sft/step_2").mkdir(parents=True)
    assert rules(findings("nemo_rl", 0, repos=repos)) == {"nemo_rl.script"}
    assert rules(findings("nemo_rl", 1, repos=repos)) == {"nemo_rl.script"}
    asked = findings("nemo_rl", 1, repos=repos, coverage={"variants": ["resume"]})
    assert rules(asked) == {"nemo_rl.leftover"}
    assert rules(findings("nemo_rl", 0, repos={})) == {"nemo_rl.checkout"}


@pytest.mark.parametrize(
    ("spec", "rule"),
    [
        ({"coverage": {"variants": ["no"]}}, "variant"),
        ({"resources": {"nodes": 2}}, "nodes"),
        ({"train": {"overrides": {"policy.no_such": 1}}}, "key"),
        ({"train": {"overrides": {"++policy.megatron_cfg.converter_type": "x"}}}, "stale-key"),
        ({"train": {"overrides": {"checkpointing.checkpoint_dir": "/x"}}}, "owned"),
        ({"train": {"overrides": {"grpo.seed": "a b"}}}, "override"),
        ({"container": {"env": {"NRL_IGNORE_TP_ACCURACY_CHECK": "0"}}}, "tp-guard"),
        ({"checkpoint": {"resume": "must"}}, "resume"),
    ],
)
def test_rules(spec: dict[str, object], rule: str) -> None:
    assert f"nemo_rl.{rule}" in rules(findings("nemo_rl", 0, **spec))


def test_too_few_gpus() -> None:
    assert rules(findings("nemo_rl", 0, gpus=1)) == {"nemo_rl.gpus"}


@pytest.mark.parametrize("variant", VARIANTS, ids=lambda item: item.name)
def test_every_script_is_valid_bash_and_isolated(variant) -> None:  # type: ignore[no-untyped-def]
    asked = context("nemo_rl", variant.level, coverage={"variants": [variant.name]})
    text = plan_of(asked).commands[-1].argv[0]
    subprocess.run(["bash", "-n", "-c", text], check=True)
    assert variant.script in text
    assert ("checkpointing.checkpoint_dir=" in text) is not variant.own_checkpoint_dir
