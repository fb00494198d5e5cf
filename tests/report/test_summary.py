"""The guides' short form: its fields, their order, and that nothing in it claims or hides too much."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from jobspec.evidence.evidence import Evidence
from jobspec.evidence.read import read_evidence
from jobspec.evidence.repo_tests import bridge_checks
from jobspec.judging.judge import judge
from jobspec.plan import NOT_PINNED, CommandPlan, ContainerPlan, RepoPlan
from jobspec.report import render_report
from jobspec.verdict import Deliverable, EvidenceItem, Status
from tests.kits.verdict_kit import (
    PHASES,
    PLAN,
    REPO,
    T0,
    RunFolder,
    StandInFramework,
    learning_rows,
    passing_run,
)

GUIDE = (
    "Bridge-side checks",
    "Local Bridge import in Stand-In",
    "Stand-In Megatron policy run",
    "Requested variants",
    "Metrics/log capture",
)
FIELDS = (
    "Result: ",
    "Requested coverage: ",
    "Model: ",
    "Deliverables:",
    "Evidence:",
    "Limitations:",
    "Follow-ups:",
)


class GuideFramework(StandInFramework):
    """A stand-in with a guide; its deliverables come in another order, and one more."""

    guide = GUIDE

    def judge(self, evidence: Evidence) -> list[Deliverable]:
        metrics, text = "attempts/1/metrics/metrics.jsonl", "step 60"
        last = EvidenceItem(metrics, 60, text, "reward", 0.84)
        return [
            Deliverable("Learning", Status.PASS, reason="rose beyond its noise"),
            Deliverable(GUIDE[4], Status.PASS, (EvidenceItem(metrics),), "all finite"),
            Deliverable(GUIDE[3], Status.NOT_REQUESTED, reason="the level asks for none", required=False),
            Deliverable(GUIDE[2], Status.PASS, (last,), "60 of 60 planned train steps ran"),
            Deliverable(GUIDE[1], Status.PASS, reason="from /src/Megatron-Bridge/src", settled=True),
            bridge_checks(evidence),
        ]


def test_the_evidence_of_a_new_provider_is_a_list(tmp_path: Path) -> None:
    told = [line for line in parts(form(passing_run(tmp_path)))["Evidence"] if "New provider" in line]
    assert told == [
        "- New provider, provider and config unit tests: not asked",
        "- New provider, parameter mapping tests: not asked",
        "- New provider, import from Hugging Face or roundtrip: not asked",
        "- New provider, generation or logits comparison: not asked",
        "- New provider, this external-loop run: there (Stand-In Megatron policy run: Pass)",
    ]


def form(run: RunFolder, fmt: str = "summary") -> str:
    evidence = read_evidence(run.root)
    return render_report(judge(evidence, GuideFramework()), evidence, fmt)


def parts(text: str) -> dict[str, list[str]]:
    """The form by field; fails when a field is missing or out of order."""
    lines = text.splitlines()
    starts = [next(i for i, line in enumerate(lines) if line.startswith(field)) for field in FIELDS]
    assert starts == sorted(starts)
    ends = [*starts[1:], len(lines)]
    return {
        field.strip(" :"): [lines[a].removeprefix(field), *lines[a + 1 : b]]
        for field, a, b in zip(FIELDS, starts, ends, strict=True)
    }


def statuses(text: str) -> list[tuple[str, str]]:
    rows = [line.removeprefix("- ") for line in parts(text)["Deliverables"][1:]]
    return [(name, rest.split(" - ")[0]) for name, _, rest in (row.partition(": ") for row in rows)]


def test_pass_has_every_field_and_the_guides_order(tmp_path: Path) -> None:
    run = passing_run(
        tmp_path, replace(PLAN, repos=(*PLAN.repos, RepoPlan("stand-in", "/src/s", commit="ffee")))
    )
    (run.root / "patches").mkdir()
    (run.root / "patches" / "bridge.diff").write_text(
        "diff --git a/src/a.py b/src/a.py\n--- a/src/a.py\n+++ b/src/a.py\ndiff --git a/n w.py b/n w.py\n"
    )
    text = form(run)
    found = parts(text)
    assert found["Result"] == ["Pass - it learns"]
    assert found["Requested coverage"] == ["Level 1 (learning), no variants"]
    assert found["Model"] == ["tiny/model at abc123 (not pinned)"]
    assert statuses(text) == [
        ("Bridge-side checks", "Skipped"),
        ("Local Bridge import in Stand-In", "Pass"),
        ("Stand-In Megatron policy run", "Pass"),
        ("Requested variants", "Not requested"),
        ("Metrics/log capture", "Pass"),
        ("Learning", "Pass"),
    ]
    assert [line for line in found["Evidence"][1:] if "New provider" not in line] == [
        "- Bridge repo: 1a2b3c4d5e plus uncommitted src/a.py, n w.py",
        "- Stand-In repo: ffee, no uncommitted files",
        "- Command: python3 -m train (in full in driver.sh)",
        "- Key lines: reward = 0.84 step 60 (attempts/1/metrics/metrics.jsonl:60)",
    ]
    assert "- a smoke run proves no learning" not in found["Limitations"]
    assert any("no convergence" in line for line in found["Limitations"])
    assert found["Follow-ups"][1:] == ["- none"]


def test_every_deliverable_says_why(tmp_path: Path) -> None:
    for line in parts(form(passing_run(tmp_path)))["Deliverables"][1:]:
        assert line.partition(" - ")[2].strip()


def test_failed_run_shows_the_first_cause_and_what_to_do(tmp_path: Path) -> None:
    run = RunFolder(tmp_path)
    for phase in PHASES:
        run.phase(phase, outcome="failed" if phase == "driver" else "ok")
    run.log("step:1 - actor/loss:0.5 - training/global_step:1\nIndexError: list index out of range\n")
    run.metrics(learning_rows(20))
    run.write()
    run.results("failed", 1)
    found = parts(form(run))
    assert found["Result"][0].startswith("Fail - ")
    assert "not evidence" not in found["Result"][0]
    assert "(attempts/1/logs/n1/train.log:2)" in found["Evidence"][-1]
    assert found["Follow-ups"][1].startswith("- fix: ")
    assert ("Stand-In Megatron policy run", "Skipped") in statuses(form(run))
    assert ("Local Bridge import in Stand-In", "Pass") in statuses(form(run))


def test_blocked_before_the_driver_is_no_evidence_against_the_provider(tmp_path: Path) -> None:
    run = RunFolder(tmp_path)
    run.event("preflight", "start")
    run.finding("preflight", "preflight.disk", "no space on /scratch", fix="free it")
    run.event("preflight", "end", outcome="blocked", seconds=1.0)
    run.write()
    run.results("blocked", 3, commands=[])
    found = parts(form(run))
    assert found["Result"] == [
        "Blocked - no space on /scratch; it was stopped before any model was built, and this is not evidence "
        "against the Bridge provider"
    ]
    assert found["Follow-ups"][1:] == [
        "- environment fix: free it",
        "- needed rerun: the same spec after that",
    ]
    assert any(line.startswith("- Preflight: Blocked") for line in found["Deliverables"])


def test_blocked_later_says_how_far_it_came(tmp_path: Path) -> None:
    run = RunFolder(tmp_path)
    for phase in PHASES[:5]:
        run.phase(phase)
    run.event("driver", "start")
    run.metrics(learning_rows(20))
    run.write()
    run.scheduler("TIMEOUT")
    assert "it was stopped after train step 20" in parts(form(run))["Result"][0]


def test_another_checkout_is_evidence_of_nothing(tmp_path: Path) -> None:
    run = passing_run(tmp_path)
    run.results(imports={"megatron.bridge": {"n1": "/opt/site-packages/megatron/bridge/__init__.py"}})
    found = parts(form(run))
    assert found["Result"][0].startswith("Blocked - ")
    assert "neither a pass nor a failure of it is evidence" in found["Result"][0]
    assert "in front of every other" in found["Follow-ups"][1]


def test_run_of_which_nothing_ran_still_answers_for_every_deliverable(tmp_path: Path) -> None:
    run = RunFolder(tmp_path)
    run.write()
    (run.folder / "events.jsonl").unlink()
    text = form(run)
    assert parts(text)["Result"][0].startswith("Blocked - no attempt left any evidence")
    assert [name for name, status in statuses(text) if status == "Skipped"] == list(GUIDE)


def test_text_and_markdown_start_with_the_form_and_go_on(tmp_path: Path) -> None:
    run = passing_run(tmp_path)
    text, markdown = form(run, "text"), form(run, "md")
    assert text.startswith("Result: Pass") and "\nPASS  learning" in text
    assert markdown.startswith("```text\nResult: Pass") and "\n```\n\n# Pass: quickstart" in markdown
    assert "<pre>Result: Pass" in form(run, "html")
    assert json.loads(form(run, "json"))["summary"] == form(run)


def test_framework_without_a_guide_has_the_form_only_when_asked_for(tmp_path: Path) -> None:
    evidence = read_evidence(passing_run(tmp_path).root)
    verdict = judge(evidence, StandInFramework())
    assert render_report(verdict, evidence, "text").startswith("PASS")
    text = render_report(verdict, evidence, "summary")
    assert statuses(text) == [("Training steps", "Pass")]
    assert "- bridge repo: 1a2b3c4d5e plus uncommitted files" in text


@pytest.mark.parametrize("text", ["a\n```\nResult: Pass", "x\r\n- Follow-ups:", "é\u2028y"])
def test_log_line_cannot_break_out_of_its_field(tmp_path: Path, text: str) -> None:
    run = RunFolder(tmp_path)
    run.finding("preflight", "preflight.x", text, fix=text)
    run.write()
    run.results("blocked", 3, commands=[])
    shown = form(run)
    assert shown.count("\nResult:") == 0 and shown.splitlines()[0].startswith("Result: Blocked")
    assert len(parts(shown)) == len(FIELDS)
    assert "\n```" not in shown


def test_long_script_is_cut_and_named(tmp_path: Path) -> None:
    command = CommandPlan("train", ("echo\n" * 200,), shell=True)  # noqa: S604 - a field of the plan
    line = parts(form(passing_run(tmp_path, replace(PLAN, commands=(command,)))))["Evidence"]
    assert any("…" in item and "driver.sh" in item and len(item) < 400 for item in line)


SUBMITTED = "a" * 40


def ran_as(tmp_path: Path, on_change: str = "block", **ran: object) -> RunFolder:
    """A passing run whose results say what the head saw of its repository."""
    repo = RepoPlan("bridge", REPO, commit=SUBMITTED, pythonpath=(f"{REPO}/src",), on_change=on_change)
    run = passing_run(tmp_path, replace(PLAN, repos=(repo,)))
    results = json.loads((run.folder / "results.json").read_text())
    results["code"] = {"bridge": {"commit": SUBMITTED, "branch": "main", **ran}}
    (run.folder / "results.json").write_text(json.dumps(results))
    end = {"v": 1, "t": T0, "phase": "code", "event": "end", "node": "", "outcome": "ok", "seconds": 0.5}
    with (run.folder / "events.jsonl").open("a") as events:
        events.write(json.dumps({**end, "event": "start"}) + "\n" + json.dumps(end) + "\n")
    return run


def code_row(run: RunFolder) -> dict[str, object] | None:
    return json.loads(form(run, "json"))["deliverables"].get("Code that ran")


def test_code_as_submitted_is_said(tmp_path: Path) -> None:
    run = ran_as(tmp_path)
    assert f"Bridge repo: {SUBMITTED}, no uncommitted files, unchanged when it started" in form(run)
    row = code_row(run)
    assert row is not None and (row["status"], row["reason"]) == ("Pass", "`bridge` as submitted")
    assert "changed after submission" not in form(run)


def test_recorded_change_shows_both_states(tmp_path: Path) -> None:
    now = "b" * 40
    run = ran_as(tmp_path, "record", commit=now, uncommitted=["a.py"], changed=["a.py", "mod.py"])
    text = form(run)
    ran = f"ran {now} plus uncommitted a.py (changed: a.py, mod.py)"
    both = f"submitted {SUBMITTED}, no uncommitted files; {ran}"
    assert both in text
    assert both in form(run, "md").partition("## Provenance")[2]
    assert both in form(run, "html").partition(">Provenance<")[2]
    assert "repository `bridge` changed after submission: the lock does not have what ran" in text
    row = code_row(run)
    assert row is not None and "changed after submission (`a.py`, `mod.py`)" in str(row["reason"])
    repo = json.loads(form(run, "json"))["provenance"]["repos"][0]
    assert (repo["commit"], repo["ran"]["commit"]) == (SUBMITTED, now)


def test_code_that_cannot_be_told_is_a_limitation_and_no_pass(tmp_path: Path) -> None:
    run = ran_as(tmp_path, commit="", unknown="`git` is not installed")
    text = form(run)
    assert text.startswith("Result: Pass")
    assert "which code of `bridge` ran cannot be told: `git` is not installed" in text
    assert f"submitted {SUBMITTED}, no uncommitted files; its state at the start cannot be told" in text
    assert code_row(run) is None


def test_attempts_with_different_code_are_said(tmp_path: Path) -> None:
    run = ran_as(tmp_path, "record")
    shutil.copytree(run.folder, run.root / "attempts" / "2")
    later = run.root / "attempts" / "2" / "results.json"
    results = json.loads(later.read_text())
    results["code"]["bridge"] |= {"uncommitted": ["a.py"], "uncommitted_sha256": "cd", "changed": ["a.py"]}
    later.write_text(json.dumps({**results, "attempt": 2}))
    assert "the attempts ran different code of `bridge`" in form(run)


def test_results_without_the_state_do_not_pass(tmp_path: Path) -> None:
    run = ran_as(tmp_path)
    results = json.loads((run.folder / "results.json").read_text())
    (run.folder / "results.json").write_text(json.dumps({**results, "code": {}}))
    assert form(run).startswith("Result: Blocked")


@pytest.mark.parametrize(
    ("container", "line"),
    [
        (ContainerPlan("pyxis", "org/x:1"), "Image: org/x:1 (tag, not pinned)"),
        (
            ContainerPlan("pyxis", "/i/x.sqsh", source_tag="org/x:1", digest="sha256:ab"),
            "Image: /i/x.sqsh (sha256:ab), from org/x:1",
        ),
        (ContainerPlan("pyxis", "/i/x.sqsh"), "Image: /i/x.sqsh (its digest is not known)"),
    ],
)
def test_image_has_its_line(tmp_path: Path, container: ContainerPlan, line: str) -> None:
    run = passing_run(tmp_path, replace(PLAN, container=container))
    text = form(run)
    assert f"- {line}\n" in text
    assert ("which image ran is not known" in text) is (container.pin == NOT_PINNED)
