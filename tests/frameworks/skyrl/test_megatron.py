"""SkyRL on Megatron: what real runs on one GPU left.

`tests/fixtures/skyrl_megatron` is a run of examples/skyrl_megatron.yaml at level `checkpoint` with
SkyRL a9564572, vLLM 0.26.0, Megatron-LM 71e418ea and Transformer Engine 2.20.2 on an H200 (2026-11-29): its
files as they were, but for logs without repeated lines and settings, and with other paths. `skyrl_failed` has
the logs of two that failed. docs/gpu.md has the runs.
"""

from __future__ import annotations

import random
import shutil
from pathlib import Path

import pytest

from jobspec import frameworks
from jobspec.evidence.read import read_evidence
from jobspec.judging import foreign_run
from jobspec.judging.judge import judge
from jobspec.triage import first_cause, scan_lines
from jobspec.verdict import Result, Status
from tests.kits.script_module import load_script

FIXTURES = Path(__file__).parents[2] / "fixtures"
RUN = FIXTURES / "skyrl_megatron"


def test_real_run_passes_its_level() -> None:
    verdict = judge(read_evidence(RUN))
    assert verdict.result is Result.PASS
    found = {item.name: item for item in verdict.deliverables}
    assert found["Weight transfer"].reason == (
        "trainer and engines differ by at most 0.00122 in mean log-probability, as in a healthy run"
    )
    assert found["Checkpoint"].reason == "complete up to step 4"
    assert found["Resume"].reason == "a new process went on from step 2 to 4"
    assert found["Training"].reason.startswith(
        "4 of 4 planned train steps ran; all values of the 22 metrics that jobspec watches"
    )
    assert (found["Environment"].status, found["Environment"].required) == (Status.FAIL, False)


def test_its_logs_and_metrics_alone_pass_as_well(tmp_path: Path) -> None:
    for name in ("logs", "metrics"):
        shutil.copytree(RUN / "attempts/1" / name, tmp_path / name)
    wanted = foreign_run.expected(frameworks.get("skyrl"), "checkpoint", (), 0, (), "", ())
    _, verdict = foreign_run.judge_files(tmp_path, wanted)
    assert verdict.result is Result.PASS
    found = {item.name: item.status for item in verdict.deliverables}
    for name in ("Training", "Weight transfer", "Checkpoint", "Resume"):
        assert found[name] is Status.PASS, name


def test_resume_without_its_log_is_not_proved(tmp_path: Path) -> None:
    shutil.copytree(RUN, tmp_path / "run")
    (tmp_path / "run/attempts/1/logs/vm/resume.log").unlink()
    found = {item.name: item.status for item in judge(read_evidence(tmp_path / "run")).deliverables}
    assert (found["Checkpoint"], found["Resume"]) == (Status.FAIL, Status.FAIL)


@pytest.mark.parametrize(
    ("log", "signature", "line", "advice"),
    [
        (
            "no-ray-serve",
            "engine.ray-statistics",
            "ImportError: RayPrometheusMetric requires Ray to be installed.",
            "set `generator.inference_engine.enable_ray_prometheus_stats: false`",
        ),
        (
            "shared-node",
            "network.port-in-use",
            "failed to listen on any local network address. port: 8064",
            "another job, or a second process of this one with the same port (MASTER_PORT, an engine's port)",
        ),
    ],
)
def test_failure_has_its_cause_and_advice(log: str, signature: str, line: str, advice: str) -> None:
    text = (FIXTURES / f"skyrl_failed/{log}.log").read_text(encoding="utf-8", errors="replace")
    cause = first_cause(scan_lines(text.split("\n")))
    assert cause is not None
    assert (cause.signature, cause.verdict) == (signature, "Blocked")
    assert line in cause.text
    assert advice in cause.fix


def test_sums_of_the_example_are_right_and_so_is_what_its_model_learns(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The strict reward takes `#### NUMBER` alone; the model learns it behind the chat template's prompt."""
    examples = Path(__file__).parents[3] / "examples"
    monkeypatch.syspath_prepend(str(examples))
    made = load_script(examples / "make_tiny_skyrl.py")
    ids = made.vocabulary(made.SUMS)
    words = {number: word for word, number in ids.items()}
    row = made.row(random.Random(0))
    first, second = row["prompt"][0]["content"].removesuffix("=?").split("+")
    assert row["reward_spec"]["ground_truth"] == str(int(first) + int(second))
    asked, answer = made.conversation(ids, int(first), int(second))
    assert "".join(words[token] for token in asked) == f"<user>{first}+{second}=?<eos><assistant>"
    assert "".join(words[token] for token in answer) == f"####\u0120{int(first) + int(second)}<eos>"
