"""A run beside the one that it repeats: which metrics are the same, by which tolerance, and what is told."""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from dataclasses import replace
from importlib.resources import files
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from jobspec.evidence.read import read_evidence
from jobspec.judging.reproduction import judged
from jobspec.plan import BaselinePlan, TolerancePlan
from jobspec.report import FORMATS, render_report
from jobspec.spec.yaml.dump import dump_spec
from jobspec.verdict import Beside, Verdict
from tests.judging.test_baseline import curve
from tests.kits.verdict_kit import PLAN, RunFolder, passing_run

COMMIT = "a" * 40
FIRST = curve(0.15, 0.84, 0.02, seed=1)


def made(
    folder: Path, rows: list[dict[str, float]], of: Path | None = None, plan: Any = PLAN, commit: str = ""
) -> RunFolder:
    run = passing_run(folder, plan)
    run.metrics(rows)
    if commit:
        pin(run, commit)
    if of is not None:
        (run.root / "reproduces.json").write_text(json.dumps({"v": 1, "folder": str(of)}))
    return run


def pin(run: RunFolder, commit: str) -> None:
    repos = {repo.name: {"commit": commit} for repo in run.plan.repos}
    (run.root / "spec.lock.yaml").write_text(dump_spec({"lock": {"repos": repos}}))


def rows_of(run: RunFolder) -> dict[str, Beside]:
    verdict = judged(read_evidence(run.root))[1]
    assert verdict.reproduction is not None
    return {row.name: row for row in verdict.reproduction.rows}


@pytest.mark.parametrize(
    ("rows", "word", "reason"),
    [
        (FIRST, "same", "identical at all 60 steps"),
        (curve(0.15, 0.86, 0.02, seed=2), "same", "(a quarter of what the first run gained)"),
        (curve(0.15, 1.60, 0.02, seed=2), "differs", "not the same as the first run: mean 1.58"),
        (curve(0.15, 0.30, 0.02, seed=2), "differs", "not the same as the first run: mean 0.28"),
        (curve(0.15, 1.00, 0.60, seed=2), "can't tell", "the noise leaves open whether"),
        ([{"step": 1, "other": 1.0}], "can't tell", "of this run no step with a `reward` was read"),
    ],
)
def test_a_metric_by_the_gain_of_the_first_run(
    rows: list[dict[str, float]], word: str, reason: str, tmp_path: Path
) -> None:
    first = made(tmp_path / "a", FIRST)
    row = rows_of(made(tmp_path / "b", rows, of=first.root))["metric reward"]
    assert (row.word, reason in row.reason) == (word, True), row


def repeats(folder: Path) -> tuple[RunFolder, list[RunFolder], RunFolder]:
    """A first run, three earlier repeats that end 0.5 around it, and one that ends 0.4 higher."""
    first = made(folder / "a", FIRST, commit=COMMIT)
    earlier = [
        made(folder / f"r{at}", curve(0.15, 0.84 + by, 0.001, seed=9 + at), first.root, commit=COMMIT)
        for at, by in enumerate((-0.5, 0.5, -0.5))
    ]
    return first, earlier, made(folder / "z", curve(0.15, 1.24, 0.001, seed=5), first.root, commit=COMMIT)


@pytest.mark.parametrize(("spread", "word"), [(0.5, "same"), (0.01, "differs")])
def test_repeats_give_the_tolerance(spread: float, word: str, tmp_path: Path) -> None:
    _, earlier, last = repeats(tmp_path)
    for at, (run, sign) in enumerate(zip(earlier, (-1, 1, -1), strict=True)):
        run.metrics(curve(0.15, 0.84 + sign * spread, 0.001, seed=9 + at))
    row = rows_of(last)["metric reward"]
    assert (row.word, "(the spread of 4 runs of the same lock)" in row.reason) == (word, True), row


def damage(run: RunFolder, how: str) -> None:
    if how == "failed":
        run.results("failed", 1)
    elif how == "running":
        (run.folder / "results.json").unlink()
    elif how == "collecting":
        run.results(collecting=True)
    elif how == "short":
        run.metrics(curve(0.15, 0.84, 0.001, seed=3)[:-1])
    elif how == "other code":
        pin(run, "b" * 40)
    else:
        (run.root / "spec.lock.yaml").unlink()


@pytest.mark.parametrize("how", ["failed", "running", "collecting", "short", "other code", "unknown code"])
def test_a_repeat_that_is_not_whole_or_of_other_code_gives_no_tolerance(how: str, tmp_path: Path) -> None:
    _, earlier, last = repeats(tmp_path)
    damage(earlier[0], how)
    assert "(the spread of 3 runs of the same lock)" in rows_of(last)["metric reward"].reason
    damage(earlier[1], how)  # two ends alone are no spread
    row = rows_of(last)["metric reward"]
    assert (row.word, "(a quarter of what the first run gained)" in row.reason) == ("differs", True), row


def test_the_newest_repeats_are_read_and_no_more(tmp_path: Path) -> None:
    _, earlier, last = repeats(tmp_path)
    for at in range(7):
        shutil.copytree(earlier[0].root, tmp_path / f"s{at}")
    assert "(the spread of 9 runs of the same lock)" in rows_of(last)["metric reward"].reason
    for at in range(7):
        damage(RunFolder(tmp_path / f"s{at}"), "failed")
    # r2 is the eighth; the others are older.
    assert "(a quarter of what the first run gained)" in rows_of(last)["metric reward"].reason


def test_the_specs_tolerance_goes_first(tmp_path: Path) -> None:
    expect = replace(
        PLAN.expect, baseline=BaselinePlan(str(tmp_path / "a"), (TolerancePlan("reward", 0.001),))
    )
    first = made(tmp_path / "a", FIRST)
    later = made(tmp_path / "b", curve(0.15, 0.88, 0.0001, seed=3), first.root, replace(PLAN, expect=expect))
    row = rows_of(later)["metric reward"]
    assert (row.word, "(the tolerance of the spec)" in row.reason) == ("differs", True), row


def test_verdict_and_phases_stand_beside_each_other(tmp_path: Path) -> None:
    first = made(tmp_path / "a", FIRST)
    later = made(tmp_path / "b", FIRST, of=first.root)
    for run, names in ((first, ("driver", "collect", "ray")), (later, ("driver", "ray"))):
        results = run.root / "attempts" / "1" / "results.json"
        phases = [{"phase": name, "outcome": "ok", "start": 10.0, "end": 14.0} for name in names]
        phases[-1] |= {"outcome": "skipped"}
        results.write_text(json.dumps({**json.loads(results.read_text()), "phases": phases}))
    rows = rows_of(later)
    result = str(judged(read_evidence(later.root))[1].result)
    assert (rows["verdict"].first, rows["verdict"].now, rows["verdict"].word) == (result, result, "same")
    assert rows["phase driver"].word == "same" and rows["phase driver"].first.startswith("ok ")
    assert "phase ray" not in rows
    assert (rows["phase collect"].now, rows["phase collect"].word) == ("-", "differs")


def test_facts_of_both_runs(tmp_path: Path) -> None:
    runs = made(tmp_path / "a", FIRST), made(tmp_path / "b", FIRST, of=tmp_path / "a")
    for run, driver in zip(runs, ("550.1", "560.2"), strict=True):
        plan = json.loads((run.root / "plan.json").read_text())
        (run.root / "plan.json").write_text(json.dumps({**plan, "gpus_per_node": 1}))
        results = run.root / "attempts" / "1" / "results.json"
        data = json.loads(results.read_text())
        seen = {
            "driver": driver,
            "gpu_type": "NVIDIA H200",
            "python": "3.11.2",
            "packages": {"torch": "2.9.0"},
        }
        data["nodes"][0]["facts"] = seen
        results.write_text(json.dumps(data))
    rows = rows_of(runs[1])
    assert (rows["driver"].first, rows["driver"].now, rows["driver"].word) == ("550.1", "560.2", "differs")
    assert rows["seed"].word == "can't tell"
    (same,) = (name for name, row in rows.items() if not row.first and not row.now and row.word == "same")
    assert {"GPU type", "package torch", "Python", "nodes"} <= {*same.split(", ")}


def test_a_first_run_that_is_gone_is_said_in_every_form(tmp_path: Path) -> None:
    first = made(tmp_path / "a", FIRST)
    later = made(tmp_path / "b", FIRST, of=first.root)
    forms = [(made_forms(later), "identical at all 60 steps")]
    shutil.rmtree(first.root)
    forms.append((made_forms(later), "its files are not here, so nothing can be compared"))
    for texts, said in forms:
        for form in ("text", "md", "html", "json"):
            assert said in texts[form], form
    schema = json.loads(files("jobspec.report").joinpath("report.schema.json").read_text())
    jsonschema.validate(json.loads(forms[0][0]["json"]), schema)


@pytest.mark.skipif(os.geteuid() != 0, reason="acts as another user")
def test_a_first_run_that_is_closed_to_me_is_said() -> None:
    with tempfile.TemporaryDirectory() as name:
        theirs, mine = Path(name) / "theirs", Path(name) / "mine"
        first = made(theirs / "a", FIRST)
        later = made(mine / "b", FIRST, of=first.root)
        Path(name).chmod(0o755)
        for closed in (theirs, first.root, first.root / "attempts", first.root / "plan.json"):
            closed.chmod(0)
            os.seteuid(65534)
            try:
                verdict = judged(read_evidence(later.root))[1]
            finally:
                os.seteuid(0)
                closed.chmod(0o755)
            assert verdict.reproduction is not None
            why = "files cannot be read: permission denied" if closed.is_dir() else "plan cannot be read"
            said = f"its {why}, so nothing can be compared"
            assert (verdict.reproduction.problem, verdict.reproduction.rows) == (said, ()), closed


def test_a_first_run_whose_name_no_disk_takes_is_said(tmp_path: Path) -> None:
    later = made(tmp_path / "b", FIRST, of=Path("/" + "x" * 300))
    found = judged(read_evidence(later.root))[1].reproduction
    assert found is not None and "file name too long" in found.problem


def made_forms(run: RunFolder) -> dict[str, str]:
    evidence, verdict = judged(read_evidence(run.root))
    assert isinstance(verdict, Verdict)
    return {form: render_report(verdict, evidence, form) for form in FORMATS}


@pytest.mark.parametrize("text", ["", "[]", '{"folder": 3}', '{"folder": ""}', "\xff", "{" * 2000])
def test_a_damaged_note_is_none(text: str, tmp_path: Path) -> None:
    run = made(tmp_path / "a", FIRST)
    (run.root / "reproduces.json").write_text(text)
    assert judged(read_evidence(run.root))[1].reproduction is None
