"""What a NeMo-RL run proves: logs in the real format. No GPU, no training."""

from __future__ import annotations

from pathlib import Path

import pytest
from framework_kit import context, plan_of

from jobspec import frameworks
from jobspec.evidence import Attempt, Evidence, LogFile
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
