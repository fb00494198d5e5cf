"""`jobspec nodes`: the list, its entries by hand and by reports, and what a submission makes of it."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from jobspec.cli import main
from jobspec.cli.live.avoid import keep_off
from jobspec.evidence.read import read_evidence
from jobspec.runs import avoided
from jobspec.runs.avoided import Avoided
from jobspec.runs.paths import RunPaths
from jobspec.runs.records import Launch, write_launch
from jobspec.runs.store import remember_folder
from tests.judging.test_named_nodes import ECC, PORT, failed

LAB = "version: 1\nname: lab\nslurm: {gpus: none}\npaths: {runs: /shared/runs}\n"


@pytest.fixture(autouse=True)
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A user with one profile and no list."""
    (tmp_path / "clusters").mkdir()
    (tmp_path / "clusters/lab.yaml").write_text(LAB)
    monkeypatch.setenv("JOBSPEC_CLUSTERS", str(tmp_path / "clusters"))
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.delenv("JOBSPEC_CLUSTER", raising=False)
    return tmp_path / "state"


def listed(capsys: pytest.CaptureFixture[str], *words: str) -> list[dict[str, Any]]:
    assert main(["nodes", *words, "--json"]) == 0
    found: list[dict[str, Any]] = json.loads(capsys.readouterr().out)
    return found


def test_nodes_alone_lists_and_says_when_there_are_none(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["nodes"]) == 0
    assert capsys.readouterr().out == "no node is to be avoided\n"
    assert main(["nodes", "add", "n[3-4]", "--cluster", "lab", "--reason", "slow \x1b[2J"]) == 0
    capsys.readouterr()
    assert main(["nodes"]) == 0
    head, first, second = capsys.readouterr().out.splitlines()
    assert head.split() == ["NODE", "CLUSTER", "UNTIL", "REASON", "EVIDENCE"]
    assert first.split()[:2] == ["n3", "lab"]
    assert second.split()[:2] == ["n4", "lab"]
    assert "slow \\x1b[2J" in first


def test_an_entry_lasts_a_day_or_as_long_as_told(capsys: pytest.CaptureFixture[str]) -> None:
    before = time.time()
    main(["nodes", "add", "n3", "--cluster", "lab"])
    main(["nodes", "add", "n4", "--cluster", "lab", "--for", "3d"])
    capsys.readouterr()
    spans = [round((row["until"] - before) / 3600) for row in listed(capsys)]
    assert spans == [24, 72]


def test_the_list_of_one_cluster(capsys: pytest.CaptureFixture[str]) -> None:
    avoided.add(os.environ, [Avoided("n1", "old", time.time() + 99), Avoided("n2", "lab", time.time() + 99)])
    assert [row["node"] for row in listed(capsys, "--cluster", "lab")] == ["n2"]
    assert [row["node"] for row in listed(capsys, "list", "--cluster", "old")] == ["n1"]
    assert [row["node"] for row in listed(capsys, "remove", "n1", "n2", "--cluster", "old")] == ["n1"]
    assert [row["node"] for row in listed(capsys)] == ["n2"]


def test_a_node_is_added_to_the_cluster_that_runs_of_the_profile_name(
    state: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A profile may have another name than its file, with a warning: its runs have its own."""
    (state.parent / "clusters/file.yaml").write_text(LAB.replace("name: lab", "name: own"))
    main(["nodes", "add", "n3", "--cluster", "file"])
    assert capsys.readouterr().out.startswith("n3 of own is avoided")
    assert [row["cluster"] for row in listed(capsys, "--cluster", "file")] == ["own"]
    assert [row["node"] for row in listed(capsys, "remove", "n3", "--cluster", "file")] == ["n3"]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["add", "n3"], "fix:  add `--cluster NAME`"),
        (["add", "n3", "--cluster", "lob"], "fix:  did you mean `lab`?"),
        (["add", "n3", "--cluster", "local"], "`local` is this machine alone: its runs leave out no node"),
        (["add", "n[3-1]", "--cluster", "lab"], "range `3-1` runs backwards"),
        (["add", "n3;x", "--cluster", "lab"], "`n3;x` is no node's name"),
        (["add", "n[1-2000]", "--cluster", "lab"], "2000 nodes in one command"),
        (["add", ",", "--cluster", "lab"], "no node is named"),
        (["add", "n3", "--cluster", "lab", "--for", "ever"], "write it like `12h` or `3d`"),
        (["add", "n3", "--cluster", "lab", "--for", "400d"], "of at most 366 days"),
        (["ad", "n3"], "did you mean `add`?"),
    ],
)
def test_wrong_words_are_told(
    words: Sequence[str], said: str, capsys: pytest.CaptureFixture[str], state: Path
) -> None:
    assert main(["nodes", *words]) == 2
    assert said in capsys.readouterr().err
    assert not (state / "jobspec/nodes.json").exists()


def test_a_damaged_list_is_told_and_stays(capsys: pytest.CaptureFixture[str], state: Path) -> None:
    (state / "jobspec").mkdir(parents=True)
    (state / "jobspec/nodes.json").write_text("{")
    assert main(["nodes"]) == 0
    assert "warning[nodes.damaged]" in capsys.readouterr().err
    assert main(["nodes", "add", "n3", "--cluster", "lab"]) == 2
    assert "it is no JSON" in capsys.readouterr().err
    assert (state / "jobspec/nodes.json").read_text() == "{"


@pytest.fixture
def run(tmp_path: Path) -> RunPaths:
    """A run of this user whose log names n2."""
    folder = tmp_path / "runs/x"
    found = failed(folder, f"{ECC}\n")
    (found.root / "spec.lock.yaml").write_text("")
    paths = RunPaths(found.root)
    launch = Launch(found.root.name, str(found.root), "lab", "slurm", "x", time.time(), job_id="7")
    write_launch(paths, launch)
    remember_folder(folder.parent, os.environ)
    return paths


def now(run: RunPaths) -> None:
    """Move the events to this hour."""
    file = run.attempt(1) / "events.jsonl"
    rows = [json.loads(line) for line in file.read_text().splitlines()]
    last = max(row["t"] for row in rows)
    file.write_text("".join(json.dumps({**row, "t": row["t"] - last + time.time()}) + "\n" for row in rows))


def test_a_report_keeps_the_users_runs_off_a_broken_node_once(
    run: RunPaths, capsys: pytest.CaptureFixture[str]
) -> None:
    now(run)
    keep_off(run, read_evidence(run.root))
    (row,) = listed(capsys)
    assert (row["node"], row["cluster"], row["run"], row["text"]) == ("n2", "lab", run.run_id, ECC)
    assert 23.9 < (row["until"] - time.time()) / 3600 <= 24
    listed(capsys, "remove", "n2")
    keep_off(run, read_evidence(run.root))
    assert listed(capsys) == []


def test_the_report_of_an_old_run_adds_nothing(run: RunPaths, capsys: pytest.CaptureFixture[str]) -> None:
    file = run.attempt(1) / "events.jsonl"
    rows = [{**json.loads(line), "t": time.time() - 90_000} for line in file.read_text().splitlines()]
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    keep_off(run, read_evidence(run.root))
    assert listed(capsys) == []


def test_a_run_that_was_not_started_from_here_adds_nothing(
    run: RunPaths, state: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    now(run)
    (state / "jobspec/run-folders").unlink()
    keep_off(run, read_evidence(run.root))
    assert listed(capsys) == []


def test_a_node_is_added_with_the_evidence_of_a_run(
    run: RunPaths, capsys: pytest.CaptureFixture[str]
) -> None:
    log = run.attempt(1) / "logs/n1/train.log"
    log.write_text(PORT + "\n")
    assert main(["nodes", "add", "n2", "--run", str(run.root), "--for", "2h"]) == 0
    capsys.readouterr()
    (row,) = listed(capsys)
    assert (row["cluster"], row["run"], row["attempt"]) == ("lab", run.run_id, 1)
    assert row["reason"] == "a GPU"
    assert round((row["until"] - time.time()) / 3600) == 2


def test_a_node_that_no_line_of_the_run_names_needs_a_reason(
    run: RunPaths, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["nodes", "add", "n3", "--run", str(run.root)]) == 2
    said = capsys.readouterr().err
    assert "error[nodes.not-named]" in said
    assert "it names `n2`" in said
    assert main(["nodes", "add", "n3", "--run", str(run.root), "--reason", "slow"]) == 0
    capsys.readouterr()
    (row,) = listed(capsys)
    assert (row["node"], row["reason"], row["run"]) == ("n3", "slow", run.run_id)
