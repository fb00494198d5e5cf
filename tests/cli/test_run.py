"""From a spec to a verdict on this machine, nothing simulated, and everything one can ask about it after."""

from __future__ import annotations

import gzip
import html
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import yaml

from jobspec.cli import main
from jobspec.runs.paths import RunPaths
from jobspec.runs.records import read_launch
from tests.kits.project_kit import HELLO, Project

SLEEPER = HELLO.replace('echo "hello from the driver"', 'echo "hello from the driver"; sleep 300')


def failing(code: int) -> str:
    return HELLO.replace("echo done >", f"echo last words; exit {code}; echo done >")


def await_driver(run: RunPaths, seconds: float = 60.0) -> None:
    """Return once the driver has said its words: its phase begins some time before its command does."""
    deadline = time.monotonic() + seconds
    logs = run.attempt(1) / "logs"
    while time.monotonic() < deadline:
        if any("hello from the driver" in path.read_text() for path in logs.glob("*/*.log")):
            return
        time.sleep(0.05)
    raise AssertionError(f"no word of the driver after {seconds} s: {[p.name for p in run.root.iterdir()]}")


def test_run_ends_with_its_verdict(project: Project) -> None:
    done = project.cli("run", "hello.yaml")
    assert done.code == 0, done.text
    assert done.out.index("driver") < done.out.index("PASS")
    run = project.last()
    assert (run.root / "report.html").is_file()
    assert json.loads(run.scheduler.read_text())["state"] == "COMPLETED"
    assert (run.artifacts / "result.txt").read_text() == "done\n"


def test_failing_command_fails_the_run_and_shows_its_log(project: Project) -> None:
    project.write("bad.yaml", failing(7))
    done = project.cli("run", "bad.yaml")
    assert done.code == 1, done.text
    assert "last words" in done.out
    assert json.loads(project.last().scheduler.read_text())["exit_code"] == 7


def test_log_of_the_rank_that_failed_first_is_shown(project: Project) -> None:
    """The other rank was ended because of it and has said nothing; its log is the last by name."""
    spec = yaml.safe_load(HELLO)
    spec["launch"] = {"mode": "srun", "tasks_per_node": 2}
    spec["train"] = {"command": ["bash", "-c", "[ $RANK = 0 ] || exec sleep 30; echo last words; exit 7"]}
    project.write("ranks.yaml", yaml.safe_dump(spec))
    done = project.cli("run", "ranks.yaml")
    assert done.code == 1, done.text
    shown = done.out.partition("last lines of ")[2].splitlines()
    assert shown[0].endswith("/command-0.log (command: exit code 7)")
    assert shown[1].strip() == "last words"


DRIVERS = {
    "a traceback": ("python3 -c 'def f(x): return x[\"rate\"]\nf({})'", "KeyError: 'rate'"),
    "argparse": (
        'python3 -c \'import argparse; argparse.ArgumentParser(prog="t").parse_args(["--lrr"])\'',
        "t: error: unrecognized arguments: --lrr",
    ),
    "Click": ("echo 'Error: No such option: --lrr' >&2; exit 2", "Error: No such option: --lrr"),
    "a missing module": ("python3 -c 'import nothere_x'", "ModuleNotFoundError: No module named 'nothere_x'"),
    "a permission": (
        'python3 -c \'raise PermissionError(13, "Permission denied", "/x")\'',
        "PermissionError: [Errno 13] Permission denied: '/x'",
    ),
    "a segmentation fault": ("echo step 3; kill -SEGV $$", "(Segmentation fault)"),
    "out of memory": ("python3 -c 'raise MemoryError'", "MemoryError"),
    "a tool of its own": ("echo cannot agree on shards; exit 3", "cannot agree on shards"),
}


@pytest.mark.parametrize("name", DRIVERS)
def test_every_report_of_a_failed_command_has_its_last_words(project: Project, name: str) -> None:
    text, words = DRIVERS[name]
    spec = yaml.safe_load(HELLO)
    spec["train"] = {"command": ["bash", "-c", text]}
    project.write("bad.yaml", yaml.safe_dump(spec))
    assert main(["run", "bad.yaml"]) in (1, 3)  # `Project.cli` allows no traceback, not even the command's
    shown = project.capsys.readouterr().out
    assert words in shown.partition("last lines of ")[2].partition("not proved")[0]
    folder = project.last().root
    assert json.loads((folder / "report.json").read_text())["driver_log"]["command"] == "command"
    for form in ("report.txt", "report.md", "report.html", "report.json", "junit.xml"):
        report = html.unescape((folder / form).read_text()).replace('\\"', '"').replace("\\", "")
        assert words in report, form


def test_requirement_that_does_not_hold_fails_the_run(project: Project) -> None:
    done = project.cli("run", "hello.yaml", "--set", 'metrics.require=["max(score) > 9"]')
    assert done.code == 1
    assert "max(score)" in done.out


def test_run_as_json_is_the_report_alone(project: Project) -> None:
    done = project.cli("run", "hello.yaml", "--json")
    assert done.code == 0, done.text
    assert done.json


def test_submit_returns_at_once_and_status_follows(project: Project) -> None:
    project.write("sleeper.yaml", SLEEPER)
    found = project.cli("submit", "sleeper.yaml", "--json").json
    await_driver(project.last())
    status = project.cli("status", found["run_id"], "--json").json[0]
    assert (status["state"], status["final"], status["run_id"]) == ("RUNNING", False, found["run_id"])
    assert "RUNNING" in project.cli("status").out
    assert "hello from the driver" in project.cli("logs").out
    cancelled = project.cli("cancel", "last")
    assert cancelled.code == 0
    assert "cancelled" in cancelled.out
    assert project.cli("status", "last", "--json").json[0]["state"] == "CANCELLED"
    assert "already CANCELLED" in project.cli("cancel", "last").out
    assert project.cli("report", "last").code != 0


def test_exec_and_attach_run_beside_the_job(project: Project) -> None:
    project.write("sleeper.yaml", SLEEPER)
    project.cli("submit", "sleeper.yaml")
    await_driver(project.last())
    done = project.process("exec", "last", "--", "bash", "-c", 'echo "in $JOBSPEC_RUN_DIR"; exit 5')
    assert (done.code, done.out.strip()) == (5, f"in {project.last().root}")
    elsewhere = project.process("exec", "last", "--node", "n9", "--", "true")
    assert (elsewhere.code, "error[run.no-node]" in elsewhere.err) == (2, True)
    assert f"it runs on {os.uname().nodename}" in elsewhere.err
    shell = project.process("attach", "last", stdin='echo "shell in $JOBSPEC_RUN_DIR"; exit 4\n')
    assert (shell.code, shell.out.strip()) == (4, f"shell in {project.last().root}")


def test_following_logs_ends_with_the_run(project: Project) -> None:
    slow = HELLO.replace("for step in 1 2 3; do", "for step in 1 2 3; do sleep 0.4; echo tick $step;")
    project.write("slow.yaml", slow)
    project.cli("submit", "slow.yaml")
    done = project.process("logs", "-f", "last")
    assert done.code == 0
    assert [line for line in done.out.splitlines() if line.startswith("tick")] == [
        "tick 1",
        "tick 2",
        "tick 3",
    ]


def test_logs_can_be_chosen(project: Project) -> None:
    project.cli("run", "hello.yaml")
    names = [row["file"] for row in project.cli("logs", "--list", "--json").json]
    assert any(name.endswith("/agent.log") for name in names)
    assert project.cli("logs", "--name", "agent").out
    assert project.cli("logs", "-n", "1").out == "hello from the driver\n"
    assert project.cli("logs", "--node", "nosuch").code == 2


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_interrupted_run_on_this_machine_is_cancelled(project: Project, number: int) -> None:
    project.write("sleeper.yaml", SLEEPER)
    argv = [sys.executable, "-m", "jobspec.cli", "run", "sleeper.yaml"]
    process = subprocess.Popen(
        argv,
        cwd=project.root,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    deadline = time.monotonic() + 60
    while not project.runs.list() and time.monotonic() < deadline:
        time.sleep(0.05)
    await_driver(project.last())
    os.killpg(process.pid, number)
    _, err = process.communicate(timeout=120)
    assert process.returncode == 130
    assert "cancelling" in err
    assert "Traceback" not in err
    assert project.cli("status", "last", "--json").json[0]["state"] == "CANCELLED"


def test_rendered_folder_runs_by_hand_and_by_submit(project: Project) -> None:
    done = project.cli("render", "hello.yaml", "--out", "out")
    assert done.code == 0
    assert not (project.root / "runs").exists()
    assert read_launch(RunPaths(project.root / "out")) is None
    first = project.cli("submit", "out", "--watch")
    assert first.code == 0, first.text
    again = project.cli("submit", "out", "--json")
    launch = read_launch(RunPaths(project.root / "out"))
    assert launch is not None
    assert again.json["job_id"] == launch.job_id


def test_dry_run_leaves_nothing(project: Project) -> None:
    before = sorted(project.root.iterdir())
    done = project.cli("submit", "hello.yaml", "--dry-run")
    assert done.code == 0
    assert done.out.startswith("#!/bin/bash")
    assert "nothing was submitted" in done.out
    assert sorted(project.root.iterdir()) == before


def test_sweep_runs_every_point_and_the_worst_decides(project: Project) -> None:
    text = HELLO.replace("echo done >", 'test "$POINT" != bad || exit 3; echo done >')
    text += "container: {env: {POINT: none}}\nsweep: {grid: {container.env.POINT: [good, bad]}}\n"
    project.write("sweep.yaml", text)
    done = project.cli("run", "sweep.yaml")
    assert done.code == 1, done.text
    assert "POINT" in done.out
    status = project.cli("status", "last", "--json").json[0]
    assert (status["points"], status["state"]) == (2, "FAILED")
    points = project.last().points()
    file = points[1].attempt(1) / "metrics" / "metrics.jsonl"
    file.parent.mkdir(exist_ok=True)
    file.write_text('{"step": 7, "reward": 0.25, "loss": 0.5}\n')
    told = project.cli("status", "last", "--json").json[0]["point_progress"]
    assert [(point["point"], point["step"], point["value"]) for point in told] == [
        (0, 3, None),
        (1, 7, 0.25),
    ]
    table = project.cli("status", "last").out
    assert "LOSS" in table and any("point 1" in row and "0.25" in row for row in table.splitlines())
    assert [json.loads(point.scheduler.read_text())["exit_code"] for point in points] == [0, 3]
    assert (points[0].root / "report.html").is_file()
    assert project.cli("report", "last", "--json").json["points"][1]["result"] == "Fail"


def test_run_is_found_from_another_folder(
    project: Project, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    project.cli("run", "hello.yaml")
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    assert project.last().run_id in project.cli("status").out
    assert project.cli("report", "last").code == 0
    monkeypatch.setenv("JOBSPEC_RUNS", str(tmp_path / "elsewhere"))
    assert "no runs" in project.cli("status").out


def test_two_runs_are_compared(project: Project) -> None:
    project.cli("run", "hello.yaml")
    project.cli("run", "hello.yaml", "--set", "container.env.COLOUR=blue")
    newer, older = project.runs.list()
    done = project.cli("compare", older.run_id, newer.run_id)
    assert done.code == 0, done.text
    assert "container.env.COLOUR" in done.out
    found = project.cli("compare", older.run_id, newer.run_id, "--json").json
    assert found["results"] == ["Pass", "Pass"]
    assert found["metrics"]["score"][0]["max"] == 0.3
    assert found["curves"]["score"] == [[[1, 0.1], [2, 0.2], [3, 0.3]]] * 2
    assert done.out.count("0.1 -> 0.3 (max 0.3) ▁▅█") == 2
    page = project.root / "compared.html"
    assert f"page: {page}" in project.cli("compare", older.run_id, newer.run_id, "--html", str(page)).out
    html = page.read_text()
    for part in (older.run_id, newer.run_id, "container.env.COLOUR", "blue", "Pass", "driver"):
        assert f">{part}<" in html
    wrong = project.cli("compare", older.run_id, newer.run_id, "--html", str(project.root))
    assert wrong.code == 2 and "Is a directory" in wrong.text


def test_a_known_good_run_is_named_in_the_spec(project: Project) -> None:
    project.cli("run", "hello.yaml")
    good = project.last()
    baseline = ("--set", f"metrics.baseline={good.run_id}")
    tolerance = "metrics.tolerances=[{metric: score, within: 0.05}]"
    done = project.cli("run", "hello.yaml", *baseline, "--set", tolerance)
    assert done.code == 0, done.text
    assert "same as the baseline: mean 0.3" in done.out
    assert str(good.root) in project.last().lock.read_text()
    (curve,) = json.loads((project.last().root / "report.json").read_text())["curves"]
    assert curve["beside"] == curve["points"] and curve["baseline"] == good.run_id
    text = HELLO.replace("0.$step", "0.1").replace("max(score) >= 0.3", "max(score) >= 0.1")
    project.write("worse.yaml", text)
    one_way = tolerance.replace("0.05}", "0.05, direction: up}")
    worse = project.cli("run", "worse.yaml", *baseline, "--set", one_way)
    assert worse.code == 1, worse.text
    assert "clearly worse than the baseline: mean 0.1, the baseline 0.3" in worse.out
    wrong = project.cli("validate", "hello.yaml", "--set", "metrics.baseline=nosuch")
    assert wrong.code == 2 and "`nosuch` is no file, no folder and no run" in wrong.text


def test_a_baseline_without_metrics_of_one_run_is_refused(project: Project) -> None:
    (project.root / "empty").mkdir()
    project.write("grid.yaml", HELLO + "sweep: {grid: {train.seed: [1, 2]}}\n")
    assert project.cli("render", "grid.yaml", "--out", "grid").code == 0
    for place, word in (("empty", "is an empty folder"), ("grid", "is a sweep of 2 points: name one")):
        done = project.cli("validate", "hello.yaml", "--set", f"metrics.baseline={project.root}/{place}")
        assert done.code == 2 and word in done.text, done.text
    good = ("--set", f"metrics.baseline={project.root}/grid/points/0")
    assert project.cli("validate", "hello.yaml", *good).code == 0


def test_lock_reproduces_the_run(project: Project) -> None:
    project.cli("run", "hello.yaml")
    first = project.last()
    checked = project.cli("reproduce", "last", "--check")
    assert checked.code == 0, checked.text
    again = project.cli("reproduce", str(first.lock), "--watch")
    assert again.code == 0, again.text
    assert len(project.runs.list()) == 2
    assert project.last().lock.read_bytes() == first.lock.read_bytes()


def test_files_of_a_run_are_judged_without_the_run(project: Project) -> None:
    project.cli("run", "hello.yaml")
    files = project.last().attempt(1)
    (files / "logs" / "out.log").write_text("[import] mylib.core from /src/mylib/core.py\n")
    judge = ("judge", files, "--framework", "command")
    assert project.cli(*judge).code == 3, "nothing was asked for"
    assert project.cli(*judge, "--require", "max(score) >= 0.3").code == 0
    assert project.cli(*judge, "--require", "max(score) > 9").code == 1
    right = project.cli(*judge, "--require", "max(score) >= 0.3", "--expect-import", "mylib.core=/src/mylib")
    assert right.code == 0, right.text
    wrong = project.cli(*judge, "--require", "max(score) >= 0.3", "--expect-import", "mylib.core=/other")
    assert wrong.code == 3, wrong.text
    assert "the run is void" in wrong.out
    unseen = project.cli(*judge, "--require", "max(score) >= 0.3", "--expect-import", "nosuch=/src")
    assert unseen.code == 3


def test_first_cause_is_found_in_a_log(project: Project) -> None:
    log = "step 1\nOSError: [Errno 28] No space left on device: '/data/ckpt'\nRuntimeError: worker died\n"
    project.write("train.log", log)
    done = project.cli("triage", "train.log")
    assert done.code == 1
    assert "train.log:2" in done.out
    assert project.cli("triage", ".", "--json").json[0]["line"] == 2
    assert project.process("triage", "-", stdin=log).code == 1
    assert "> OSError: [Errno 28]" in done.out and "| step 1" in done.out and "  fix: " in done.out
    (project.root / "packed.log.gz").write_bytes(gzip.compress(log.encode()))
    assert "packed.log.gz:2" in project.cli("triage", "packed.log.gz").out
    project.write("good.log", "all is well\n")
    assert project.cli("triage", "good.log").code == 0


def test_folder_of_runs_from_the_environment_takes_new_runs(
    project: Project, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Otherwise `status` would look for the run where `run` did not put it."""
    monkeypatch.setenv("JOBSPEC_RUNS", str(tmp_path / "my runs"))
    done = project.cli("run", "hello.yaml")
    assert done.code == 0, done.text
    assert [path.name for path in (tmp_path / "my runs").iterdir()] == ["hello"]
    assert project.cli("status", "last", "--json").json[0]["final"] is True


def test_submit_refuses_a_model_that_is_not_there(project: Project) -> None:
    """On a cluster the nodes would find out after the wait in the queue."""
    spec = project.write("absent.yaml", HELLO + "model: {path: ./no-such-model}\n")
    assert project.cli("validate", spec).code == 0
    done = project.cli("submit", spec)
    assert done.code == 2
    assert "stage.missing" in done.err
    assert "no-such-model" in done.err
    assert not (project.root / "runs").exists()
