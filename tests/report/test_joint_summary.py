"""One short form over several runs: the worst result, each level with its line, nothing said twice."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from jobspec.evidence.read import read_evidence
from jobspec.judging.judge import judge
from jobspec.report import Report, build_report
from jobspec.report.joint_summary import render_joint_summary, worst
from jobspec.verdict import Result
from tests.kits.verdict_kit import PLAN, passing_run
from tests.report.test_summary import GuideFramework


def report(folder: Path, level: str, number: int, result: Result = Result.PASS) -> Report:
    expect = replace(PLAN.expect, level=level, number=number, proves="it learns")
    evidence = read_evidence(passing_run(folder / level, replace(PLAN, expect=expect)).root)
    made = build_report(judge(evidence, GuideFramework()), evidence)
    reason = "the loss is NaN" if result is not Result.PASS else made.verdict.reason
    return replace(made, verdict=replace(made.verdict, result=result, reason=reason))


def test_the_worst_result_counts_and_each_level_has_its_line(tmp_path: Path) -> None:
    reports = [report(tmp_path, "smoke", 0), report(tmp_path, "moe", 4, Result.FAIL)]
    lines = render_joint_summary(reports).splitlines()
    assert lines[0] == "Result: Fail - 1 of 2 runs passed"
    assert lines[1:4] == [
        "Requested coverage:",
        "- Level 0 (smoke), no variants: Pass - it learns",
        "- Level 4 (moe), no variants: Fail - the loss is NaN",
    ]
    fields = [line for line in lines if line.endswith(":") and not line.startswith("- ")]
    assert fields == [
        "Requested coverage:",
        "Model:",
        "Deliverables:",
        "Evidence:",
        "Limitations:",
        "Follow-ups:",
    ]


def test_what_all_runs_say_stands_once(tmp_path: Path) -> None:
    text = render_joint_summary([report(tmp_path, "smoke", 0), report(tmp_path, "moe", 4, Result.BLOCKED)])
    assert text.count("tiny/model at abc123") == 1
    assert text.count("Stand-In Megatron policy run: Pass - 60 of 60 planned train steps ran") == 1
    assert "- Level 4 (moe), no variants: needed rerun:" in text
    assert "- none" not in text


def test_runs_of_different_commits_prove_no_single_one(tmp_path: Path) -> None:
    one, other = report(tmp_path, "smoke", 0), report(tmp_path, "moe", 4)
    assert "different commits" not in render_joint_summary([one, other])
    other = replace(other, repos=(replace(other.repos[0], commit="ffee"),))
    assert "- the runs had different commits of `bridge`: no single" in render_joint_summary([one, other])


def test_all_runs_pass_or_the_result_is_no_pass(tmp_path: Path) -> None:
    good = report(tmp_path, "smoke", 0)
    for result in (Result.FAIL, Result.BLOCKED, Result.NOTHING_RAN):
        assert worst([good, replace(good, verdict=replace(good.verdict, result=result))]) is result
    assert render_joint_summary([good, good]).startswith("Result: Pass - 2 of 2 runs passed\n")
    assert f", run {good.run_id}: Pass" in render_joint_summary([good, good])
