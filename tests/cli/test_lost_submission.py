"""A submission that is interrupted while sbatch has the job: nobody loses it, nothing submits it twice."""

from __future__ import annotations

import json
import os
import shlex
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest

from jobspec.launchers.file_lock import locked
from jobspec.launchers.slurm.launcher import IN_FLIGHT_S
from jobspec.runs.paths import RunPaths
from jobspec.runs.records import read_launch, write_launch
from jobspec.runs.store import RunStore
from tests.kits.project_kit import Project
from tests.kits.slurm_kit import Controller

SUBMIT = ("submit", "away.yaml", "--cluster-file", "site.yaml")


def interrupt(project: Project, slurm: Controller, *more: str) -> tuple[RunPaths, str, str]:
    """Ctrl-C while sbatch has the job; the run and what was printed."""
    slurm.set("slow")
    argv = [sys.executable, "-m", "jobspec.cli", *SUBMIT, *more]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    process = subprocess.Popen(argv, cwd=project.root, text=True, **pipes)  # type: ignore[call-overload]
    while not (slurm.home / "queue").read_text() and process.poll() is None:
        time.sleep(0.05)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=60)
    assert process.returncode == 130, out + err
    slurm.set("slow", on=False)
    return RunStore(project.root / "runs").list()[0], out, err


def age(run: RunPaths) -> None:
    """Let the submission be so old that its sbatch has ended for sure."""
    launch = read_launch(run)
    assert launch is not None
    write_launch(run, replace(launch, intent_time=launch.intent_time - IN_FLIGHT_S))


@pytest.mark.parametrize("more", [(), ("--json",)])
def test_run_and_next_step_are_said_before_the_scheduler_is_asked(
    project: Project, slurm: Controller, more: tuple[str, ...]
) -> None:
    run, out, err = interrupt(project, slurm, *more)
    again = f"jobspec submit {run.root} --cluster-file site.yaml"
    assert f"run {run.run_id}: if interrupted, `{again}` goes on\n" in err
    assert out == ""


def test_status_settles_it(project: Project, slurm: Controller) -> None:
    run, _, _ = interrupt(project, slurm)
    (row,) = project.cli("status", "last", "--json").json
    assert (row["job_id"], row["state"]) == ("41", "PENDING")
    launch = read_launch(run)
    assert launch is not None and launch.job_id == "41"
    assert "job 41 on lab" in project.cli("submit", run.root, "--cluster-file", "site.yaml").out
    assert slurm.count("sbatch") == 1


def test_submitting_the_spec_again_finds_it_and_asks(project: Project, slurm: Controller) -> None:
    run, _, _ = interrupt(project, slurm)
    done = project.cli(*SUBMIT)
    assert done.code == 2
    assert "error[launch.unsettled]" in done.err
    assert f"run `{run.run_id}` of this name is job 41, PENDING" in done.err
    assert f"`jobspec status {run.run_id}` watches it" in done.err
    assert slurm.count("sbatch") == 1
    assert len(RunStore(project.root / "runs").list()) == 1, "nothing was rendered"


def test_one_of_which_no_job_is_known_goes_on_by_its_folder(project: Project, slurm: Controller) -> None:
    run, _, _ = interrupt(project, slurm)
    (slurm.home / "queue").write_text("")
    for _ in range(2):  # it stays unsettled
        done = project.cli(*SUBMIT)
        assert done.code == 2
        assert f"`jobspec submit {run.root}` goes on with it" in done.err
    age(run)
    assert "job 41 on lab" in project.cli("submit", run.root, "--cluster-file", "site.yaml").out
    assert project.cli(*SUBMIT).code == 0
    assert slurm.count("sbatch") == 3


def test_one_whose_job_has_another_name_is_not_doubled(project: Project, slurm: Controller) -> None:
    """A `job_submit` plugin names jobs by the site's rules."""
    run, _, _ = interrupt(project, slurm)
    slurm.rename("prod-away")
    age(run)
    assert "job 41 on lab" in project.cli("submit", run.root, "--cluster-file", "site.yaml").out
    assert slurm.count("sbatch") == 1
    (row,) = project.cli("status", "last", "--json").json
    assert (row["job_id"], row["state"]) == ("41", "PENDING")


def test_sbatch_that_outlives_its_caller_is_waited_for(project: Project, slurm: Controller) -> None:
    """Nobody can ask jobspec to end it: `kill -9`, a lost login node."""
    slurm.set("late")
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    argv = [sys.executable, "-m", "jobspec.cli", "submit"]
    first = subprocess.Popen([*argv, *SUBMIT[1:]], cwd=project.root, **pipes)  # type: ignore[call-overload]
    while not slurm.count("sbatch") and first.poll() is None:
        time.sleep(0.05)
    first.kill()
    first.communicate()
    (run,) = RunStore(project.root / "runs").list()
    more = [str(run.root), "--cluster-file", "site.yaml"]
    again = subprocess.Popen([*argv, *more], cwd=project.root, text=True, **pipes)  # type: ignore[call-overload]
    assert again.stderr is not None
    told = again.stderr.readline()
    slurm.set("late", on=False)
    out, err = again.communicate(timeout=120)
    assert "may be on its way yet; its job is looked for" in told, told + err
    assert "job 41 on lab" in out
    assert (again.returncode, slurm.count("sbatch")) == (0, 1)


def test_one_that_another_command_submits_right_now_is_not_lost(project: Project, slurm: Controller) -> None:
    """A loop over seeds submits one spec many times at once."""
    run, _, _ = interrupt(project, slurm)
    with locked(run.job):
        assert project.cli(*SUBMIT, "--json").json["job_id"] == "42"


def test_consent_starts_another_run(project: Project, slurm: Controller) -> None:
    run, _, _ = interrupt(project, slurm)
    done = project.cli(*SUBMIT, "--allow", "launch.unsettled", "--json")
    assert (done.code, done.json["job_id"]) == (0, "42")
    assert done.json["run_id"] != run.run_id


def test_controller_that_is_away_leaves_it_unsettled(project: Project, slurm: Controller) -> None:
    run, _, _ = interrupt(project, slurm)
    slurm.set("down")
    done = project.cli(*SUBMIT)
    assert done.code == 2
    assert (
        f"`jobspec submit {run.root}` goes on with it" in done.err and "error[launch.scheduler]" in done.err
    )
    assert slurm.count("sbatch") == 1


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives a folder away")
def test_one_of_somebody_else_is_theirs(project: Project, slurm: Controller) -> None:
    """A runs folder that a group shares."""
    run, _, _ = interrupt(project, slurm)
    (slurm.home / "queue").write_text("")
    os.chown(run.root, 65534, 65534)
    assert project.cli(*SUBMIT).code == 0


def test_finding_says_what_the_scheduler_answers(project: Project, slurm: Controller) -> None:
    run, _, _ = interrupt(project, slurm)
    rows = (slurm.home / "queue").read_text()
    (slurm.home / "queue").write_text("")
    unknown = f"run `{run.run_id}` of this name may have been submitted: "
    launch = read_launch(run)
    assert launch is not None
    assert f"{unknown}no job `{launch.job_name}` is known (yet)\n" in project.cli(*SUBMIT).err
    slurm.set("down")
    said = f"{unknown}`squeue` failed with exit code 1: whether the job was accepted is not known yet\n"
    assert said in project.cli(*SUBMIT).err
    slurm.set("down", on=False)
    (slurm.home / "queue").write_text(rows)
    argv = shlex.join([sys.executable, "-m", "jobspec.cli", *SUBMIT])
    done = subprocess.run(
        ["bash", "-c", f"ulimit -f 0; exec {argv}"],
        cwd=project.root,
        text=True,
        capture_output=True,
        check=False,
    )
    assert f"run `{run.run_id}` of this name is job {launch.job_name}, PENDING" in done.stderr, done.stderr
    assert f"`jobspec status {run.run_id}` watches it" in done.stderr


def test_cancel_of_one_that_has_completed_says_so(project: Project, slurm: Controller) -> None:
    run, _, _ = interrupt(project, slurm)
    slurm.forget("COMPLETED")
    done = project.cli("cancel", "last")
    assert done.out == f"run {run.run_id}: already COMPLETED\n"
    assert slurm.count("scancel") == 0
    assert json.loads(run.scheduler.read_text())["state"] == "COMPLETED"


def test_cancel_of_one_that_waits_ends_it(project: Project, slurm: Controller) -> None:
    run, _, _ = interrupt(project, slurm)
    assert project.cli("cancel", "last").out == f"run {run.run_id}: cancelled\n"
    assert (slurm.home / "queue").read_text().startswith("41|CANCELLED|")


def test_damaged_run_beside_it_hides_nothing(project: Project, slurm: Controller) -> None:
    run, _, _ = interrupt(project, slurm)
    damaged = Path(run.root.parent) / "20261128-010203-ab12cd"
    damaged.mkdir()
    (damaged / "launch.json").write_text("{")
    assert f"run `{run.run_id}`" in project.cli(*SUBMIT).err
