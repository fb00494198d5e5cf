"""The controller is away: what a run's files say is said at once, and what Slurm would add is marked."""

from __future__ import annotations

import json
import shlex
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from jobspec.runs.paths import RunPaths
from tests.kits.project_kit import Project
from tests.kits.slurm_kit import AWAY, Controller
from tests.kits.verdict_kit import RunFolder

SITE_FILE = ("--cluster-file", "site.yaml")


@pytest.fixture
def slurm(project: Project, slurm: Controller) -> Controller:
    """With a job that runs."""
    assert project.cli("submit", "away.yaml", *SITE_FILE).code == 0
    slurm.say("RUNNING")
    return slurm


def train(run: RunPaths, ended: bool) -> Path:
    """What the head writes while the driver runs, and once it has ended well; the driver's log."""
    folder = RunFolder(run.root)
    for phase in ("preflight", "driver", "collect") if ended else ("preflight",):
        folder.phase(phase)
    if not ended:
        folder.event("driver", "start")
    plan = run.plan.read_text()
    folder.write()
    run.plan.write_text(plan)
    if ended:
        folder.results(commands=[{"name": "command", "exit_code": 0, "start": 1.0, "end": 2.0}])
    return folder.log("step one\n")


@pytest.mark.parametrize("more", [(), ("last",)])
def test_status_tells_what_the_files_say(project: Project, slurm: Controller, more: tuple[str, ...]) -> None:
    train(project.last(), ended=True)
    slurm.set("down")
    (row,) = project.cli("status", *more, "--json").json
    assert (row["state"], row["final"], row["job_id"]) == ("UNKNOWN", False, "41")
    assert row["scheduler"]["reason"].startswith("results.json says `ok`; `squeue` failed with exit code 1")
    done = project.cli("status", *more)
    assert (done.code, AWAY in done.err) == (2 if more else 0, True)
    assert "results.json says `ok`" in done.out
    assert not project.last().scheduler.exists(), "nobody knows how the job ended"


def test_of_a_run_that_was_started_again_the_files_say_nothing_yet(
    project: Project, slurm: Controller
) -> None:
    train(project.last(), ended=True)
    project.last().attempt(2).mkdir()
    slurm.set("down")
    (row,) = project.cli("status", "--json").json
    assert row["state"] == "UNKNOWN" and "results.json" not in row["scheduler"]["reason"]


def test_status_of_a_run_without_results_has_its_progress(project: Project, slurm: Controller) -> None:
    metrics = project.last().attempt(1) / "metrics"
    train(project.last(), ended=False)
    metrics.mkdir()
    (metrics / "metrics.jsonl").write_text('{"step": 7, "loss": 0.5}\n')
    slurm.set("down")
    (row,) = project.cli("status", "last", "--json").json
    assert (row["state"], row["step"]) == ("UNKNOWN", 7)


def test_report_judges_the_files_and_says_what_is_missing(project: Project, slurm: Controller) -> None:
    train(project.last(), ended=True)
    slurm.set("down")
    done = project.cli("report", "last")
    assert done.code == 0
    assert done.out.startswith("PASS  ")
    assert "- how Slurm saw the job end is not recorded" in done.out
    assert "the verdict stands on the run's files alone, without how the job ended" in done.err
    slurm.set("down", on=False)
    slurm.forget("COMPLETED")
    done = project.cli("report", "last")
    assert (done.code, done.err) == (0, "")
    assert "how Slurm saw the job end" not in done.out
    assert json.loads(project.last().scheduler.read_text())["state"] == "COMPLETED"


def test_followed_logs_go_on(project: Project, slurm: Controller) -> None:
    log = train(project.last(), ended=False)
    slurm.set("down")
    followed = subprocess.Popen(
        [sys.executable, "-m", "jobspec.cli", "logs", "-f", "last"],
        cwd=project.root,
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    lines: list[str] = []
    assert followed.stdout is not None

    def read() -> None:
        lines.extend(iter(followed.stdout.readline, ""))  # type: ignore[union-attr]

    reader = threading.Thread(target=read)
    reader.start()
    asked = slurm.count("squeue")
    while slurm.count("squeue") < asked + 4 and followed.poll() is None:  # as often as one query tries
        time.sleep(0.1)
    with log.open("a") as file:
        file.write("step two\n")
    while "step two\n" not in lines and followed.poll() is None:
        time.sleep(0.1)
    assert followed.poll() is None, "it has not given up"
    slurm.set("down", on=False)
    slurm.forget("COMPLETED")
    reader.join(60)
    assert followed.wait(60) == 0
    assert lines == ["step one\n", "step two\n"]
    assert json.loads(project.last().scheduler.read_text())["state"] == "COMPLETED"


def test_report_on_a_full_disk_prints_its_verdict(project: Project, slurm: Controller) -> None:
    """`ulimit -f 0` lets every write to a file fail, as a full disk does."""
    train(project.last(), ended=True)
    slurm.forget("COMPLETED")
    argv = shlex.join([sys.executable, "-m", "jobspec.cli", "report", "last"])
    done = subprocess.run(
        ["bash", "-c", f"ulimit -f 0; exec {argv}"],
        cwd=project.root,
        text=True,
        capture_output=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("PASS  ")
    assert "the reports could not be written" in done.stderr
    assert not project.last().scheduler.exists()


def test_job_that_has_our_id_now_is_not_watched(project: Project, slurm: Controller) -> None:
    train(project.last(), ended=True)
    (slurm.home / "queue").write_text("41|RUNNING|bob|2026-11-28T01:00:00|n9|N/A|somebody-elses|None\n")
    (row,) = project.cli("status", "last", "--json").json
    assert (row["state"], row["final"]) == ("COMPLETED", True)


def test_renamed_job_is_watched_and_cancelled(project: Project, slurm: Controller) -> None:
    """Its name changes by `scontrol update JobName=` or by a job_submit plugin."""
    slurm.rename("prod-away")
    (row,) = project.cli("status", "last", "--json").json
    assert (row["state"], row["job_id"]) == ("RUNNING", "41")
    assert project.cli("cancel", "last").out == f"run {project.last().run_id}: cancelled\n"
    assert slurm.count("scancel") == 1


@pytest.mark.parametrize("more", [(), ("--json",)])
def test_each_run_is_cancelled_though_one_is_refused(
    project: Project, slurm: Controller, more: tuple[str, ...]
) -> None:
    first = project.last()
    assert project.cli("submit", "away.yaml", *SITE_FILE).code == 0
    second = project.last()
    rows = (slurm.home / "queue").read_text().splitlines(keepends=True)
    theirs = "41|RUNNING|bob|2026-11-28T01:00:00|n9|N/A|somebody-elses|None\n"
    (slurm.home / "queue").write_text(theirs + rows[1])
    done = project.cli("cancel", first.run_id, second.run_id, *more)
    assert done.code == 2
    assert "error[launch.no-job]\n  what: id 41 now has the name `somebody-elses`" in done.err
    assert [row.split("|")[1] for row in (slurm.home / "queue").read_text().splitlines()] == [
        "RUNNING",
        "CANCELLED",
    ]
    if more:
        assert [row["state"] for row in done.json] == ["UNKNOWN", "CANCELLED"]
    else:
        assert done.out == f"run {first.run_id}: not cancelled\nrun {second.run_id}: cancelled\n"


def test_slow_accounting_makes_a_run_final(project: Project, slurm: Controller) -> None:
    """It takes longer than the queue of a controller that is there may take."""
    train(project.last(), ended=True)
    slurm.forget("FAILED", "7:0")
    slurm.set("tardy")
    (row,) = project.cli("status", "last", "--json").json
    assert (row["state"], row["final"]) == ("FAILED", True)
    assert json.loads(project.last().scheduler.read_text())["exit_code"] == 7
