"""`status`: the verdict beside the state, filters, columns for the terminal, and the index of ended runs."""

from __future__ import annotations

import argparse
import json
import os
import shlex
import shutil
import sqlite3
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from jobspec.cli import run_filter, run_table
from jobspec.cli.commands import status
from jobspec.cli.commands.schema import output_schema
from jobspec.cli.live import conclude, observe
from jobspec.cli.live.observe import View
from jobspec.cli.parser import build_parser
from jobspec.finding import JobspecError
from jobspec.runs.index import NAME, RunIndex, stamp
from jobspec.runs.paths import RunPaths
from jobspec.runs.store import state_folder
from tests.kits.project_kit import HELLO, Project
from tests.slurm.lab import await_true

SCHEMA = json.loads(output_schema("status"))
REPORTS = ("report.txt", "report.md", "report.html", "report.json", "junit.xml")


def listed(project: Project, *argv: str) -> list[dict[str, object]]:
    done = project.cli("status", "--json", *argv)
    assert done.code == 0, done.text
    jsonschema.validate(json.loads(done.out), SCHEMA)
    return json.loads(done.out)  # type: ignore[no-any-return]


def indexed() -> dict[str, tuple[str, dict[str, Any]]]:
    """All rows of the index."""
    index = RunIndex(os.environ)
    return index.read(index.roots())


def failing_requirement(project: Project) -> RunPaths:
    done = project.cli("run", "hello.yaml", "--set", 'metrics.require=["max(score) > 9"]')
    assert done.code == 1, done.text
    return project.last()


def test_a_completed_run_whose_verdict_is_fail_shows_fail(project: Project) -> None:
    run = failing_requirement(project)
    for _ in range(2):  # the second time from the index
        header, row = (line.split() for line in project.cli("status").out.splitlines())
        shown = dict(zip(header, row, strict=False))
        assert (shown["RUN"], shown["STATE"], shown["VERDICT"]) == (run.run_id, "COMPLETED", "Fail")
    (data,) = listed(project)
    assert (data["verdict"], data["framework"], data["level"]) == ("Fail", "command", "run")
    assert data["verdict_reason"]


def test_a_run_that_nobody_followed_gets_its_reports_by_the_next_status(project: Project) -> None:
    assert project.cli("run", "hello.yaml").code == 0
    run = project.last()
    for name in REPORTS:
        (run.root / name).unlink()
    (data,) = listed(project)
    assert data["verdict"] == "Pass"
    assert all((run.root / name).is_file() for name in REPORTS)


def ended(project: Project, *argv: str) -> RunPaths:
    """A run that was started by a command which did not wait for it, and no command since."""
    assert project.process("submit", *argv).code == 0
    run = project.last()
    await_true(run.exit_file.is_file, "the end of the job", 60)
    return run


def test_the_job_itself_leaves_the_reports_of_a_run_that_nobody_follows(project: Project) -> None:
    run = ended(project, "hello.yaml", "--set", 'metrics.require=["max(score) > 9"]')
    assert all((run.root / name).is_file() for name in REPORTS), (run.root / "report.log").read_text()
    report = json.loads((run.root / "report.json").read_text())
    assert (report["result"], report["run"]["scheduler"]["state"]) == ("Fail", "")
    assert (run.root / "report.log").read_text() == f"{run.run_id}: Fail\n"
    assert run.exit_file.read_text().split() == ["0"], "the job's exit code is its commands'"
    (data,) = listed(project)
    assert (data["state"], data["verdict"]) == ("COMPLETED", "Fail")
    told = json.loads((run.root / "report.json").read_text())["run"]["scheduler"]
    assert told["state"] == "COMPLETED", "how the job ended is added by the next command that asks"


def test_a_run_that_is_followed_is_judged_once(project: Project) -> None:
    assert project.cli("run", "hello.yaml").code == 0
    assert not (project.last().root / "report.log").exists()


def test_the_last_point_of_a_sweep_leaves_the_reports_of_the_sweep(project: Project) -> None:
    project.write("grid.yaml", HELLO + "sweep: {grid: {train.seed: [1, 2]}}\n")
    run = ended(project, "grid.yaml")
    for point in run.points():
        assert json.loads((point.root / "report.json").read_text())["result"] == "Pass"
    table = json.loads((run.root / "report.json").read_text())
    assert [point["result"] for point in table["points"]] == ["Pass", "Pass"]
    assert "RUNNING" not in (run.root / "report.txt").read_text()
    (data,) = listed(project)
    assert data["verdict"] == "Pass"


def test_a_report_from_before_the_end_is_written_anew(project: Project) -> None:
    run = failing_requirement(project)
    (run.root / "report.json").write_text('{"result": "Nothing ran"}')
    os.utime(run.root / "report.json", (1, 1))
    (data,) = listed(project)
    assert data["verdict"] == "Fail"


def test_a_report_that_was_begun_before_the_end_is_written_anew(project: Project) -> None:
    run = failing_requirement(project)
    report = json.loads((run.root / "report.json").read_text())
    assert report["run"]["scheduler"]["state"] == "COMPLETED"
    report["run"]["scheduler"]["state"] = ""
    (run.root / "report.json").write_text(json.dumps({**report, "result": "Nothing ran"}))
    (data,) = listed(project)
    assert data["verdict"] == "Fail"


def test_a_report_from_before_the_end_is_no_verdict_and_is_not_kept(project: Project) -> None:
    run = failing_requirement(project)
    good = (run.root / "report.json").read_text()
    (run.root / "report.json").write_text(json.dumps({**json.loads(good), "result": "Nothing ran"}))
    os.utime(run.root / "report.json", (1, 1))
    blocked = run.root / "report.txt"  # the reports cannot be written anew
    blocked.unlink()
    blocked.mkdir()
    for _ in range(2):
        (data,) = listed(project)
        assert (data["state"], data["verdict"]) == ("COMPLETED", "")
        assert str(data["verdict_reason"]).startswith("no report: ")
        assert "no report: " in project.cli("status").out
        assert indexed() == {}
    blocked.rmdir()
    (data,) = listed(project)
    assert data["verdict"] == "Fail"


@pytest.mark.parametrize("name", ["launch.json", "scheduler.json"])
def test_damage_of_a_run_in_the_index_is_told(project: Project, name: str) -> None:
    run = failing_requirement(project)
    listed(project)
    assert indexed().keys() == {str(run.root)}
    (run.root / name).write_text("{")
    os.utime(run.root / name, (1, 1))  # the report looks newer
    for _ in range(2):
        done = project.cli("status")
        assert "error[run.damaged-file]" in done.err and f"`{name}` cannot be read" in done.err
        assert "damaged" in done.out


def test_a_file_that_changes_while_it_is_read_makes_the_row_invalid(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = failing_requirement(project)
    read = status.as_json

    def changed_meanwhile(view: View, problem: str) -> dict[str, object]:
        data = read(view, problem)
        report = json.loads((run.root / "report.json").read_text())
        (run.root / "report.json").write_text(json.dumps({**report, "result": "Blocked"}))
        return data

    monkeypatch.setattr(status, "as_json", changed_meanwhile)
    assert [data["verdict"] for data in listed(project)] == ["Fail"]
    monkeypatch.setattr(status, "as_json", read)
    assert [data["verdict"] for data in listed(project)] == ["Blocked"]


def test_filters(project: Project) -> None:
    failed = failing_requirement(project)
    assert project.cli("run", "hello.yaml", "--set", "name=other").code == 0
    passed = project.last()
    rendered = project.cli("render", "hello.yaml", "--set", "name=third")
    assert rendered.code == 0
    both = {failed.run_id, passed.run_id}

    def ids(*argv: str) -> set[object]:
        return {data["run_id"] for data in listed(project, *argv)}

    for _ in range(2):
        assert ids("--verdict", "fail") == {failed.run_id}
        assert ids("--verdict", "Pass", "--state", "completed") == {passed.run_id}
        assert ids("--name", "o*er") == {passed.run_id}
        assert ids("--framework", "command", "--level", "run", "--cluster", "local") == both
        assert ids("--framework", "verl") == set()
        assert both <= ids("--since", "1h", "--mine")
        assert ids("--since", "2999-01-01") == set()
    (newer,) = listed(project, "--limit", "1", "--cluster", "local")
    assert newer["run_id"] == passed.run_id
    assert "no run fits in" in project.cli("status", "--name", "nobody").out


@pytest.mark.parametrize(
    ("argv", "said"),
    [
        (["--state", "runing"], "did you mean `running`?"),
        (["--verdict", "failed"], "did you mean `fail`?"),
        (["--since", "yesterday"], "write 2026-11-29"),
        (["last", "--state", "failed"], "leave the filters out"),
        (["last", "--mine"], "leave the filters out"),
    ],
)
def test_a_wrong_filter_is_told(project: Project, argv: list[str], said: str) -> None:
    done = project.cli("status", *argv)
    assert (done.code, said in done.err) == (2, True)


def test_the_index_follows_the_folders(project: Project) -> None:
    run = failing_requirement(project)
    assert indexed() == {}
    listed(project)
    ((root, (mark, data)),) = indexed().items()
    assert (root, mark, data["verdict"]) == (str(run.root), stamp(str(run.root)), "Fail")
    report = json.loads((run.root / "report.json").read_text())
    (run.root / "report.json").write_text(json.dumps({**report, "result": "Blocked"}))  # judged anew
    assert [item["run_id"] for item in listed(project, "--verdict", "blocked")] == [run.run_id]
    assert listed(project, "--verdict", "fail") == []
    shutil.rmtree(run.root)
    assert listed(project, "--all") == []
    other = failing_requirement(project)
    listed(project)
    assert indexed().keys() == {str(other.root)}, "the next row takes the place of those that are gone"


def test_a_folder_whose_name_is_not_unicode_costs_the_others_no_row(project: Project) -> None:
    run = failing_requirement(project)
    odd = os.fsdecode(os.fsencode(run.root.parent) + b"\xff/" + os.fsencode(run.root.name))
    shutil.copytree(run.root, odd)
    assert len(listed(project, "--all")) == 2
    index = RunIndex(os.environ)
    assert index.roots() == [str(run.root)]
    assert index.read([odd, str(run.root)]).keys() == {str(run.root)}


def test_a_named_run_that_has_ended_is_read_once(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    run = failing_requirement(project)
    first = listed(project, run.run_id)
    monkeypatch.setattr(observe, "observe", lambda *_: pytest.fail("the index has said it"))
    assert listed(project, run.run_id, "last") == first * 2


@pytest.mark.parametrize("damage", ["text", "folder", "other format", "locked", "read-only"])
def test_without_an_index_everything_is_shown(project: Project, damage: str) -> None:
    run = failing_requirement(project)
    listed(project)
    file = state_folder(os.environ) / NAME
    blocker = None
    if damage == "text":
        file.write_text("no database " * 100)
    elif damage == "folder":
        file.unlink()
        file.mkdir()
    elif damage == "other format":
        with sqlite3.connect(file) as db:
            db.execute("PRAGMA user_version = 99")
            db.execute("DROP TABLE runs")
            db.execute("CREATE TABLE runs (x)")
    elif damage == "locked":
        blocker = sqlite3.connect(file, isolation_level=None)
        blocker.execute("BEGIN EXCLUSIVE")
    else:
        file.unlink()
        file.symlink_to("/proc/nobody/index")
    (data,) = listed(project)
    assert (data["run_id"], data["verdict"]) == (run.run_id, "Fail")
    if blocker is not None:
        blocker.close()
    if damage in ("text", "other format"):
        assert str(run.root) in indexed()


ROW = {
    **dict.fromkeys(("run_id", "name", "run_dir", "framework", "level", "cluster", "job_id", "state"), ""),
    **dict.fromkeys(("verdict", "verdict_reason"), ""),
    **dict.fromkeys(("submit_time", "intent_time", "step", "steps", "value", "scheduler"), None),
    "final": True,
    "points": 0,
    "figures": {},
    "damaged": [],
}


@pytest.mark.parametrize(
    "text",
    [
        "{}",
        "[]",
        "{",
        "null",
        json.dumps({**ROW, "points": "2"}),
        json.dumps({**ROW, "figures": {"loss": "x"}}),
    ],
)
def test_a_damaged_row_of_the_index_is_made_anew(project: Project, text: str) -> None:
    run = failing_requirement(project)
    listed(project)
    with sqlite3.connect(state_folder(os.environ) / NAME) as db:
        db.execute("UPDATE runs SET data = ?", (text,))
    assert indexed() == {}
    assert "Fail" in project.cli("status").out
    assert indexed().keys() == {str(run.root)}


def test_a_relative_state_folder_and_a_folder_that_is_no_text_are_borne(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = failing_requirement(project)
    monkeypatch.setenv("XDG_STATE_HOME", "relative")
    for _ in range(2):  # the second time from the index
        assert [data["verdict"] for data in listed(project)] == ["Fail"]
    assert indexed().keys() == {str(run.root)}
    odd = run.root.parent.with_name("odd\udcff")  # as a program sees a name that is not UTF-8
    run.root.parent.rename(odd)
    assert [data["run_dir"] for data in listed(project)] == [str(odd / run.run_id)]


@pytest.mark.parametrize(
    ("changes", "verdict"),
    [
        ({}, "Fail"),
        ({"result": None}, "Fail"),
        ({"result": None, "exit_code": 4}, "Nothing ran"),
        ({"result": None, "exit_code": []}, ""),
        ({"result": ["Pass"]}, ""),
        ({"result": "Great"}, ""),
    ],
)
def test_a_report_has_a_known_verdict_or_none(
    project: Project, changes: dict[str, object], verdict: str
) -> None:
    """A sweep's report has an exit code alone."""
    run = failing_requirement(project)
    report = json.loads((run.root / "report.json").read_text())
    (run.root / "report.json").write_text(json.dumps({**report, **changes}))
    assert [data["verdict"] for data in listed(project)] == [verdict]


def test_rows_of_another_format_are_not_read(project: Project) -> None:
    failing_requirement(project)
    listed(project)
    with sqlite3.connect(state_folder(os.environ) / NAME) as db:
        db.execute("PRAGMA user_version = 1")
    assert indexed() == {}
    assert [data["verdict"] for data in listed(project)] == ["Fail"]


def test_a_run_that_cannot_be_judged_hides_no_other(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    good = failing_requirement(project)
    assert project.cli("run", "hello.yaml").code == 0
    odd = project.last()
    (odd.root / "report.json").unlink()
    write = conclude.write_reports

    def fails(run: RunPaths) -> None:
        if run == odd:
            raise OverflowError("too odd")
        write(run)

    monkeypatch.setattr(conclude, "write_reports", fails)
    done = project.cli("status")
    assert done.code == 0, done.text
    rows = {line.split()[0]: line for line in done.out.splitlines()}
    assert "no report: OverflowError: too odd" in rows[odd.run_id]
    assert "Fail" in rows[good.run_id]


def test_a_run_that_cannot_be_shown_hides_no_other(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    good = failing_requirement(project)
    assert project.cli("run", "hello.yaml").code == 0
    odd = project.last()
    read = observe.progress

    def fails(run: RunPaths) -> observe.Progress:
        if run == odd:
            raise OverflowError("too odd")
        return read(run)

    monkeypatch.setattr(observe, "progress", fails)
    done = project.cli("status")
    assert done.code == 0, done.text
    rows = {line.split()[0]: line.split() for line in done.out.splitlines()}
    assert rows[odd.run_id][2] == "damaged" and "Fail" in rows[good.run_id]
    assert "OverflowError: too odd" in done.err


def test_two_processes_that_write_the_index_lose_no_row(project: Project) -> None:
    code = (
        "import os, sys; from jobspec.runs.index import RunIndex; i = RunIndex(os.environ)\n"
        f"row = {ROW}\n"
        "for n in range(20): i.write({f'/{sys.argv[1]}/{n}': ('s', {**row, 'points': n})})"
    )
    writers = [subprocess.Popen([sys.executable, "-c", code, name]) for name in "ab"]
    assert [writer.wait(60) for writer in writers] == [0, 0]
    rows = indexed()
    assert all(data == {**ROW, "points": int(root.rpartition("/")[2])} for root, (_, data) in rows.items())
    assert len(rows) >= 20  # a row is skipped while the other one holds the lock longer than WAIT_S


def test_the_index_finds_the_rows_of_any_number_of_runs(project: Project) -> None:
    index = RunIndex(os.environ)
    rows = {f"/runs/{number}": (f"stamp {number}", {**ROW, "points": number}) for number in range(1200)}
    index.write(rows)
    assert index.read(rows) == rows
    assert index.read(["/runs/7", "/runs/none"]) == {"/runs/7": rows["/runs/7"]}
    assert index.read([]) == {}


def test_watch_ends_when_every_run_has_ended(project: Project) -> None:
    failing_requirement(project)
    assert "Fail" in project.cli("status", "--watch", "1").out


def test_watch_on_a_terminal_keeps_what_it_has_to_tell(project: Project) -> None:
    """The screen is emptied before findings are printed, not after."""
    run = failing_requirement(project)
    run.state.write_text("{")
    argv = [str(Path(sys.executable).with_name("jobspec")), "status", "--watch", "1"]
    command = shlex.join([*argv, "--runs", str(project.runs.folders[0])])
    done = subprocess.run(["script", "-qec", command, "/dev/null"], capture_output=True, check=True)
    emptied, _, screen = done.stdout.decode().rpartition("\x1b[2J")
    assert emptied == "\x1b[H" and "error[run.damaged-file]" in screen and run.run_id in screen


def row(**cells: str) -> tuple[str, ...]:
    return tuple(cells.get(name.lower().replace(" ", "_"), "") for name in run_table.HEADER)


def test_columns_give_way_until_the_table_fits_the_terminal() -> None:
    ended = {"state": "COMPLETED", "verdict": "Fail", "step": "5 of 10", "reason": "x" * 200, "loss": "0.5"}
    where = {"attempt": "1", "job": "123456", "cluster": "here", "age": "4 min 05 s"}
    rows = [row(run="20261129-163945-31fbe5", name="a-name", **ended, **where)]
    everything = [name for name in run_table.HEADER if name not in ("GRAD NORM", "TOKENS/S")]
    assert run_table.fitted(rows)[0] == everything
    header, body = run_table.fitted(rows, 80)
    assert header == ["RUN", "NAME", "STATE", "VERDICT", "STEP", "REASON"]
    assert body == [["20261129-163945-31fbe5", "a-name", "COMPLETED", "Fail", "5 of 10", "x" * 200]]
    assert run_table.fitted(rows, 10)[0] == ["RUN", "STATE", "VERDICT"]


def test_a_table_on_a_terminal_is_as_wide_as_it_and_shows_control_characters(project: Project) -> None:
    """A real pseudo-terminal of 80 columns."""
    assert project.cli("run", "hello.yaml").code == 0
    run = project.last()
    data = json.loads(run.scheduler.read_text())
    run.scheduler.write_text(json.dumps({**data, "reason": "\x1b[2J" + "word " * 40}))
    os.utime(run.root / "report.json")
    jobspec = Path(sys.executable).with_name("jobspec")
    command = f"stty cols 80; TERM=xterm {jobspec} status --runs {project.runs.folders[0]}"
    env = {**os.environ, "NO_COLOR": "1"}
    done = subprocess.run(["script", "-qec", command, "/dev/null"], capture_output=True, env=env, check=True)
    lines = done.stdout.decode().splitlines()
    assert max(len(line) for line in lines) <= 80
    assert "\x1b" not in done.stdout.decode()
    assert any(run.run_id in line and "Pass" in line for line in lines)


def test_since_counts_from_now_or_is_a_date() -> None:
    now = datetime(2026, 11, 29, 12, tzinfo=UTC)
    assert run_filter.since("90m", now) == "20261129-103000"
    assert run_filter.since("1w", now) == "20261122-120000"
    assert run_filter.since("2026-11-01T02:00+02:00", now) == "20261101-000000"
    with pytest.raises(JobspecError):
        run_filter.since("999999w", now)


def test_every_filter_is_an_option_of_status() -> None:
    args = build_parser("status", status).parse_args([])
    assert isinstance(args, argparse.Namespace)
    assert run_filter.checked(args) == {}
