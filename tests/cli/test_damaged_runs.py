"""Files of a run that something has damaged: what they would prove is not proved, and nothing breaks."""

from __future__ import annotations

import copy
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from jobspec import pipeline
from jobspec.cli.live import observe
from jobspec.finding import JobspecError
from jobspec.plan import from_json
from jobspec.report import render_report
from jobspec.runs.paths import RunPaths
from jobspec.runs.records import read_launch
from tests.kits.project_kit import Project

FILES = ("plan.json", "attempts/1/results.json", "artifacts/manifest.json", "attempts/1/events.jsonl")
ODD = (None, 3, [1], {"a": {}})


def places(data: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Every place in a document; of a list the first item alone."""
    yield path
    pairs = data.items() if isinstance(data, dict) else enumerate(data[:1]) if isinstance(data, list) else ()
    for key, value in pairs:
        yield from places(value, (*path, key))


def changed(data: Any, path: tuple[Any, ...], value: Any) -> Any:
    if not path:
        return value
    data = copy.deepcopy(data)
    at = data
    for key in path[:-1]:
        at = at[key]
    at[path[-1]] = value
    return data


def look(run: RunPaths) -> None:
    """What `report`, `status` and `logs -f` read of a run."""
    try:
        evidence, verdict = pipeline.judge_run(run.root)
        for fmt in ("text", "json"):
            render_report(verdict, evidence, fmt)
        observe.observe([run])
    except JobspecError:
        pass  # told in words


@pytest.mark.parametrize("name", FILES)
def test_odd_value_anywhere(project: Project, name: str) -> None:
    assert project.cli("run", "hello.yaml").code == 0
    run = project.last()
    file = run.root / name
    text = file.read_text()
    documents = [json.loads(line) for line in text.splitlines()] if name.endswith("l") else [json.loads(text)]
    for index, document in enumerate(documents[:3]):
        for path in places(document):
            for odd in ODD:
                lines = [json.dumps(item) for item in documents]
                lines[index] = json.dumps(changed(document, path, odd))
                file.write_text("\n".join(lines) + "\n")
                look(run)


def test_odd_launch_record(project: Project) -> None:
    assert project.cli("run", "hello.yaml").code == 0
    run = project.last()
    record = json.loads(run.state.read_text())
    for key in record:
        for odd in (None, [1], {"a": {}}):
            run.state.write_text(json.dumps({**record, key: odd}))
            with pytest.raises(JobspecError):
                read_launch(run)
    run.state.write_text(json.dumps({**record, "of_a_later_version": [1]}))
    assert read_launch(run) is not None


@pytest.mark.parametrize("text", ["", "[]", "{}", "null", '{"version": 1}', '{"version": 1, "nodes": "2"}'])
def test_damaged_plan(project: Project, text: str) -> None:
    with pytest.raises(ValueError):
        from_json(text)
    assert project.cli("render", "hello.yaml", "--out", "out").code == 0
    (project.root / "out/plan.json").write_text(text)
    done = project.cli("submit", "out")
    assert done.code == 2
    assert "error[run.damaged-file]" in done.err


def test_damaged_lock(project: Project) -> None:
    assert project.cli("run", "hello.yaml").code == 0
    project.last().lock.write_bytes(b"\xb0\xff")
    for argv in (["compare", "last", "last"], ["reproduce", "last", "--check"]):
        done = project.cli(*argv)
        assert done.code == 2
        assert "spec.lock.yaml" in done.err


def test_folder_of_another_run_is_told_of(project: Project) -> None:
    (project.root / "runs").mkdir()
    (project.root / "runs/hello").symlink_to("nosuch")
    (project.root / "runs/loop").symlink_to("loop")
    (project.root / "runs/file").write_text("")
    assert project.cli("status").code == 0
    assert Path("runs/hello").is_symlink()


def test_a_link_is_no_attempt(project: Project) -> None:
    assert project.cli("run", "hello.yaml").code == 0
    run = project.last()
    (run.root / "attempts/2").symlink_to(".")
    assert run.attempts() == [1]
    _, verdict = pipeline.judge_run(run.root)
    assert verdict.result == "Pass"


def test_of_very_many_attempts_the_newest_are_read_and_that_is_told(project: Project) -> None:
    assert project.cli("run", "hello.yaml").code == 0
    run = project.last()
    for number in range(2, 1102):
        run.attempt(number).mkdir()
    evidence, _ = pipeline.judge_run(run.root)
    assert [attempt.number for attempt in evidence.attempts] == list(range(102, 1102))
    (found,) = [problem for problem in evidence.problems if problem.rule == "evidence.attempts"]
    assert "1101 attempts are there" in found.why


def test_a_folder_in_the_place_of_a_log(project: Project) -> None:
    assert project.cli("run", "hello.yaml").code == 0
    run = project.last()
    (log,) = run.attempt(1).glob("logs/*/command-0.log")
    log.unlink()
    log.mkdir()
    shown = project.cli("logs", str(run.root))
    assert shown.code == 2
    assert "file.access" in shown.err


def test_a_pipe_without_a_writer_is_an_empty_spec(project: Project) -> None:
    os.mkfifo(project.root / "pipe.yaml")
    assert project.cli("validate", "pipe.yaml").code == 2
