"""Sweeps as their users have them: what is run again, what is told apart, and the table."""

from __future__ import annotations

import csv
import json
import re
import subprocess
import sys
from importlib.resources import files
from pathlib import Path
from xml.etree import ElementTree

import jsonschema
import pytest

from tests.kits.junit_kit import junit_problems
from tests.kits.project_kit import Project

EXAMPLES = Path(__file__).parents[2] / "examples"
# Each point appends to `ran`; `blocked` finds a disk full until `repaired` is there.
SWEEP = """\
version: 1
name: grid
framework: command
launch: {mode: srun}
container: {env: {POINT: none, ROOT: FOLDER}}
train:
  command:
    - bash
    - -c
    - |
      echo "$POINT" >> "$ROOT/ran"
      for step in 1 2 3; do
        echo "{\\"step\\": $step, \\"tokens_per_s\\": $${#POINT}0$step, \\"step_time\\": 0.$step}" \\
          >> "$JOBSPEC_METRICS_DIR/metrics.jsonl"
      done
      case $POINT in
        oom) echo "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 14.10 GiB"
             echo "torch.distributed.DistBackendError: NCCL error in: ProcessGroupNCCL.cpp:3690"; exit 1 ;;
        blocked) test -e "$ROOT/repaired" || { echo "OSError: [Errno 28] No space left on device"
                 exit 1; } ;;
        crash) exit 7 ;;
      esac
sweep: {grid: {container.env.POINT: [good, better, oom, blocked, crash]}}
"""


@pytest.fixture
def grid(project: Project) -> Project:
    project.write("grid.yaml", SWEEP.replace("FOLDER", str(project.root)))
    return project


def statuses(project: Project) -> dict[str, str]:
    table = project.cli("report", "last", "--json").json
    return {row["sets"]["container.env.POINT"]: row["status"] for row in table["points"]}


def ran(project: Project) -> list[str]:
    found = (project.root / "ran").read_text().split()
    (project.root / "ran").unlink()
    return found


def test_results_are_told_apart_and_only_the_unfinished_run_again(grid: Project) -> None:
    done = grid.cli("run", "grid.yaml")
    assert done.code == 1, done.text
    assert "best: point 1" in done.out
    lines = [line.partition("]")[2].split() for line in done.out.splitlines() if "] point " in line]
    assert lines[-1][3] == 'container.env.POINT="crash"'
    last = {line[1]: line[2] for line in lines}
    assert last == {"0": "ok", "1": "ok", "2": "failed", "3": "failed", "4": "failed"}
    assert ran(grid) == ["good", "better", "oom", "blocked", "crash"]
    assert statuses(grid) == {
        "good": "OK", "better": "OK", "oom": "OOM", "blocked": "BLOCKED", "crash": "FAIL",
    }  # fmt: skip
    first = grid.last()

    (grid.root / "repaired").touch()
    again = grid.cli("run", "grid.yaml")
    assert "4 of 5 points have finished in an earlier run" in again.out
    assert ran(grid) == ["blocked"]
    assert statuses(grid)["blocked"] == "OK"
    rows = list(csv.DictReader(grid.cli("report", "last", "--format", "csv").out.splitlines()))
    assert [row["reused"] for row in rows] == [first.run_id] * 3 + ["", first.run_id]
    assert [float(row["tokens_per_s"]) for row in rows[:2]] == [402.5, 602.5]  # of steps 2 and 3

    idle = grid.cli("submit", "grid.yaml")
    assert (idle.code, idle.out.count("nothing was started")) == (0, 1)
    assert statuses(grid)["crash"] == "FAIL"
    assert grid.cli("submit", grid.last().root).code == 0
    assert not (grid.root / "ran").exists()


def test_a_table_that_cannot_be_written_is_told_by_status_and_by_report(grid: Project) -> None:
    grid.cli("run", "grid.yaml", "--set", "sweep.grid={container.env.POINT: [good]}")
    run = grid.last()
    (run.root / "report.json").unlink()
    (run.root / "report.txt").unlink()
    (run.root / "report.txt").mkdir()
    done = grid.cli("status")
    assert "no report: IsADirectoryError" in done.out and done.err == ""
    done = grid.cli("report", "last")
    assert (done.code, "the reports could not be written" in done.err) == (0, True), done.text


def test_lock_of_a_sweep_continues_it_and_rerun_does_not(grid: Project) -> None:
    grid.cli("run", "grid.yaml", "--set", "sweep.grid={container.env.POINT: [good, better]}")
    ran(grid)
    lock = grid.last().lock
    assert "2 of 2" in grid.cli("reproduce", lock).out
    assert not (grid.root / "ran").exists()
    grid.cli("reproduce", lock, "--rerun", "--watch")
    assert ran(grid) == ["good", "better"]
    grid.cli("run", "grid.yaml", "--set", "sweep.grid={container.env.POINT: [better, oom]}")
    assert ran(grid) == ["oom"]  # a wider sweep keeps what it shares with the one before


def test_a_changed_spec_runs_all_points(grid: Project) -> None:
    few = ("--set", "sweep.grid={container.env.POINT: [good, better]}")
    grid.cli("run", "grid.yaml", *few)
    ran(grid)
    grid.cli("run", "grid.yaml", *few, "--set", "container.env.EXTRA=1")
    assert ran(grid) == ["good", "better"]


def test_every_form_of_the_table(grid: Project) -> None:
    grid.cli("run", "grid.yaml", "--set", "sweep.grid={container.env.POINT: [good, oom]}")
    forms = {fmt: grid.cli("report", "last", "--format", fmt).out for fmt in ("md", "csv", "jsonl", "html")}
    assert "| 1 | oom | 302.5 | 0.25 | - | 2 | OOM |" in forms["md"]
    lines = [json.loads(line) for line in forms["jsonl"].splitlines()]
    assert [(line["point"], line["status"]) for line in lines] == [(0, "OK"), (1, "OOM")]
    plots = forms["html"].count('<div class="bars">')
    bars = [forms["html"].count(f'class="bar{more}"') for more in ("", " bad")]
    assert (plots, bars) == (2, [2, 2])  # speed, and the figure that the run logs
    assert '<a href="points/1/report.html">1: POINT=oom</a>' in forms["html"]
    assert (grid.last().root / "points/1/report.html").is_file()
    data = re.findall(r'<script type="application/json">(.*)</script>', forms["html"])
    (plot,) = map(json.loads, data)  # of what the run logs, with a line for each point
    assert [line["name"] for line in plot["lines"]] == ["0: POINT=good", "1: POINT=oom"]
    for fmt, text in forms.items():
        name = {"md": "report.md", "html": "report.html"}.get(fmt, f"sweep.{fmt}")
        assert (grid.last().root / name).read_text() == text
    junit = grid.cli("report", "last", "--format", "junit").out
    assert junit_problems(junit) == []
    suite = ElementTree.fromstring(junit).find("testsuite")
    assert suite is not None and (suite.get("tests"), suite.get("failures")) == ("2", "1")
    data = json.loads(grid.cli("report", "last", "--json").out)
    jsonschema.validate(data, json.loads(files("jobspec.report").joinpath("sweep.schema.json").read_text()))
    assert [point["result"] for point in data["points"]] == ["Pass", "Blocked"]
    single = grid.cli("report", str(grid.last().points()[0].root), "--format", "csv")
    assert (single.code, "of a sweep's table" in single.err) == (2, True)


def test_the_best_point_is_chosen_by_any_metric(grid: Project) -> None:
    grid.cli("run", "grid.yaml", "--set", "sweep.grid={container.env.POINT: [good, better]}")
    name = "tokens_per_s"
    high = json.loads(grid.cli("report", "last", "--json", "--best", f"last({name})").out)
    low = json.loads(grid.cli("report", "last", "--json", "--best", f"lowest last({name})").out)
    scores = [point["score"] for point in high["points"]]
    assert (high["best"], low["best"]) == (scores.index(max(scores)), scores.index(min(scores))) == (1, 0)
    assert high["rule"] == f"highest last({name})"
    nothing = grid.cli("report", "last", "--best", "max(nothing)").out
    assert "no point has a pass and a value of nothing" in nothing
    wrong = grid.cli("report", "last", "--best", "lst(x)")
    assert (wrong.code, "did you mean `last`?" in wrong.err) == (2, True)
    point = str(grid.last().points()[0].root)
    assert "the run is no sweep" in grid.cli("report", point, "--best", "last(x)").err


def test_damaged_index_is_a_finding(grid: Project) -> None:
    grid.cli("run", "grid.yaml", "--set", "sweep.grid={container.env.POINT: [good]}")
    grid.last().points_index.write_text('{"points": [{}]}')
    done = grid.cli("report", "last")
    assert (done.code, "`points.json` cannot be read" in done.err) == (2, True)
    grid.cli("run", "grid.yaml", "--set", "sweep.grid={container.env.POINT: [good]}")
    assert ran(grid) == ["good", "good"]  # what cannot be read is not finished


@pytest.mark.ray
@pytest.mark.train
@pytest.mark.slow
@pytest.mark.timeout(600)
def test_small_sweep_of_trl_names_its_best_point(project: Project) -> None:
    """The example with two of its points and one that cannot run."""
    subprocess.run(
        [sys.executable, EXAMPLES / "make_tiny_model.py", "--home", project.root / "hf"], check=True
    )
    text = (EXAMPLES / "sweep_small.yaml").read_text().replace("./.cache/hf", str(project.root / "hf"))
    project.write("sweep.yaml", text)
    grid = "{train.overrides.per_device_train_batch_size: [4, 8, 16]}"
    few = ("--set", f"sweep.grid={grid}", "--set", "sweep.exclude=[]", "--set", "train.workers=1")
    done = project.cli("run", "sweep.yaml", *few)
    assert done.code == 0, done.text
    table = project.cli("report", "last", "--json").json
    assert [row["status"] for row in table["points"]] == ["OK", "OK"]
    assert all(row["tokens_per_s"] > 0 and row["step_s"] > 0 for row in table["points"])
    assert table["best"] in (0, 1)
    assert [row["sets"] for row in table["pruned"]] == [{"train.overrides.per_device_train_batch_size": 4}]
    assert "whole groups of 8 completions (`trl.generations`)" in done.out
