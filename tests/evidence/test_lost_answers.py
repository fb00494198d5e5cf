"""Answers that failed while the run went on. Lines are of the frameworks' sources, filled in by these."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from jobspec.evidence.evidence import Attempt, Evidence
from jobspec.evidence.lost_answers import LEFT_OUT, ZERO, in_logs, in_metrics
from jobspec.frameworks.shared.metric_deliverables import learning_deliverable
from jobspec.judging.judge import line_findings
from jobspec.judging.not_proved import limitations
from jobspec.metrics import Row, Table
from jobspec.plan import LearningPlan
from jobspec.verdict import Result, Status
from tests.kits.verdict_kit import PLAN

VERL = """\
step:1 - critic/score/mean:0.25
(RewardLoopWorker pid=4123) WARNING:2026-11-20 11:00:07,511:Reward computation timed out after 300.0s for \
data_source=openai/gsm8k. Response preview: Let me think...
(RewardLoopWorker pid=4123) ERROR:2026-11-20 11:00:09,101:Reward computation failed for \
data_source=openai/gsm8k: Cannot connect to host j:8000. Response preview: So the answer is...
(RewardLoopWorker pid=4124) ERROR:2026-11-20 11:00:10,101:Reward computation failed for \
data_source=openai/gsm8k: Cannot connect to host j:8000. Response preview: W... [repeated 14x across cluster]
step:2 - critic/score/mean:0.27
"""


def test_lines_of_verl(tmp_path: Path) -> None:
    log = tmp_path / "train.log"
    log.write_text(VERL)
    late, failed = in_logs([("logs/n1/train.log", log)])
    assert (late.count, late.fate, late.file, late.line) == (1, ZERO, "logs/n1/train.log", 2)
    assert (failed.count, failed.fate, failed.line) == (15, ZERO, 3)
    assert str(failed) == "at least 15 rewards whose computation failed were counted with a reward of 0"


def test_two_logs_of_the_same_lines_are_not_counted_twice(tmp_path: Path) -> None:
    one, two = tmp_path / "train.log", tmp_path / "worker-1.out"
    line = "Error generating response for sample 3: vLLM generation timed out after 900s\n"
    one.write_text(line * 3)
    two.write_text(line * 2)
    (lost,) = in_logs([("train.log", one), ("worker-1.out", two)])
    assert (lost.count, lost.file) == (3, "train.log")


def test_a_number_of_repeats_that_ray_does_not_write(tmp_path: Path) -> None:
    log = tmp_path / "train.log"
    log.write_text(f"Error in _run_prompt: late [repeated {'9' * 5000}x across cluster]\n")
    assert [lost.count for lost in in_logs([("train.log", log)])] == [1]


def test_a_healthy_log(tmp_path: Path) -> None:
    log = tmp_path / "train.log"
    log.write_text("step:1 - critic/score/mean:0.25\nReward computation took 3.1s\n")
    assert in_logs([("train.log", log)]) == ()


def table(**series: list[float]) -> Table:
    names = {"reward": "reward", **{key: key.replace("__", "/") for key in series}}
    return Table(
        tuple(
            Row(names[key], step, value, source="metrics.jsonl", line=step)
            for key, values in series.items()
            for step, value in enumerate(values, 1)
        )
    )


def test_counts_of_each_step_are_added() -> None:
    (lost,) = in_metrics(table(generate__num_error_trajectories=[0, 3, 0, 5]))
    assert (lost.count, lost.share, lost.fate, lost.line) == (8, None, LEFT_OUT, 2)


def test_a_total_is_its_last_value_beside_what_was_kept() -> None:
    """NeMo-RL's single controller; its logger may put `train/` before the name."""
    kept = {"train__rollout__committed_total": [10.0, 30.0], "train__rollout__infra_drops_total": [0.0, 10.0]}
    (lost,) = in_metrics(table(**kept))
    assert (lost.count, lost.share) == (10, 0.25)
    assert str(lost) == "at least 10 prompts that failed for a cause outside (25.0% of all) were left out"


def test_no_loss_is_told_where_all_counts_are_zero() -> None:
    assert list(in_metrics(table(response__aborted_ratio=[0, 0], rollout__infra_drops_total=[0, 0]))) == []


def evidence(aborted: float) -> Evidence:
    steps = range(1, 41)
    metrics = table(
        reward=[0.02 * step + 0.01 * (step % 2) for step in steps],
        response__aborted_ratio=[aborted for _ in steps],
    )
    plan = replace(PLAN, expect=replace(PLAN.expect, learning=LearningPlan("reward")))
    return Evidence(Path("/r"), plan, attempts=(Attempt(1, "a", metrics=metrics),))


def test_a_reward_of_less_than_half_of_the_answers_shows_no_learning() -> None:
    found = learning_deliverable(evidence(0.7))
    assert found.status is Status.BLOCKED
    assert found.reason.startswith(
        "answers that were aborted (70.0% of all) were left out of the reward's mean"
    )


def test_a_smaller_loss_is_a_finding_and_a_limitation() -> None:
    few = evidence(0.05)
    assert learning_deliverable(few).status is Status.PASS
    said = [item for item in limitations(few) if "answers that were aborted (5.0% of all)" in item]
    assert len(said) == 1
    (finding,) = [
        one for one in line_findings(few, few.attempts[0], Result.PASS) if one.rule == "metrics.lost-answers"
    ]
    assert (finding.file, finding.line) == ("metrics.jsonl", 1)
    assert evidence(0.0).lost == ()


def test_a_solution_that_is_not_parsed_leaves_its_answers_unchecked(tmp_path: Path) -> None:
    log = tmp_path / "train.log"
    log.write_text(
        "Failed to parse gold solution:  72\n{'reward': 0.0}\nFailed to parse gold solution:  10\n"
    )
    (lost,) = in_logs([("train.log", log)])
    assert str(lost) == "at least 2 answers whose reference solution was not parsed were not compared with it"
    assert lost.fate not in (ZERO, LEFT_OUT)  # in some copies of that function such an answer gets 1.0
