"""Finding runs again: by id, prefix, folder or `last`, over any number of folders, without an index file."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from jobspec.finding import JobspecError
from jobspec.runs import store as runs
from jobspec.runs.paths import RunPaths
from jobspec.runs.records import Launch, read_launch, read_results, write_launch
from jobspec.runs.store import RunStore, known_folders, remember_folder


def make(root: Path, name: str, run_id: str) -> Path:
    folder = root / name / run_id
    folder.mkdir(parents=True)
    (folder / "plan.json").write_text("{}")
    return folder


@pytest.fixture
def store(tmp_path: Path) -> RunStore:
    make(tmp_path / "a", "x", "20261128-010203-aaaaaa")
    make(tmp_path / "a", "y", "20261129-010203-bbbbbb")
    make(tmp_path / "b", "x", "20261128-010203-aabbcc")
    (tmp_path / "a" / ".checkouts" / "repo").mkdir(parents=True)
    (tmp_path / "a" / "note.txt").write_text("")
    (tmp_path / "a" / "x" / ".20261128-010203-aaaaaa.1.tmp").mkdir()
    return RunStore(tmp_path / "a", tmp_path / "b", tmp_path / "nosuch")


def test_listing_is_newest_first_and_of_runs_alone(store: RunStore) -> None:
    assert [run.run_id for run in store.list()] == [
        "20261129-010203-bbbbbb",
        "20261128-010203-aabbcc",
        "20261128-010203-aaaaaa",
    ]


def test_folder_of_two_names_has_each_run_once(store: RunStore, tmp_path: Path) -> None:
    (tmp_path / "home").symlink_to(tmp_path)
    twice = RunStore(*store.folders, tmp_path / "home" / "a")
    assert twice.folders == store.folders
    assert twice.find("20261129").root == tmp_path / "a" / "y" / "20261129-010203-bbbbbb"


@pytest.mark.parametrize(
    ("ref", "run_id"),
    [
        ("20261128-010203-aaaaaa", "20261128-010203-aaaaaa"),
        ("20261129", "20261129-010203-bbbbbb"),
        ("20261128-010203-aab", "20261128-010203-aabbcc"),
        ("last", "20261129-010203-bbbbbb"),
        ("x", "20261128-010203-aabbcc"),
    ],
)
def test_run_is_found_by_id_prefix_name_and_last(store: RunStore, ref: str, run_id: str) -> None:
    assert store.find(ref).run_id == run_id


@pytest.mark.parametrize(
    ("ref", "ids"),
    [
        ("x", ["20261128-010203-aabbcc", "20261128-010203-aaaaaa"]),
        ("20261129", []),
        ("last", []),
        ("nosuch", []),
    ],
)
def test_runs_of_a_name(store: RunStore, ref: str, ids: list[str]) -> None:
    assert [run.run_id for run in store.named(ref)] == ids


def test_directory_is_a_run_wherever_it_lies(store: RunStore, tmp_path: Path) -> None:
    folder = make(tmp_path, "elsewhere", "any-name")
    found = store.find(str(folder))
    assert found.root == folder
    assert found.ref == str(folder)


def test_ambiguous_prefix_lists_the_candidates(store: RunStore) -> None:
    with pytest.raises(JobspecError, match="is the beginning of 2 run ids") as caught:
        store.find("20261128")
    assert "`20261128-010203-aabbcc` (x)" in caught.value.findings[0].why


def test_unknown_run_suggests_the_nearest(store: RunStore) -> None:
    with pytest.raises(JobspecError, match="no run") as caught:
        store.find("20261128-010203-aaaaab")
    assert "20261128-010203-aaaaaa" in caught.value.findings[0].why


def test_no_runs_at_all_names_the_folders(tmp_path: Path) -> None:
    with pytest.raises(JobspecError) as caught:
        RunStore(tmp_path / "runs").find("last")
    assert str(tmp_path / "runs") in caught.value.findings[0].why


def test_listing_opens_no_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """1000 runs on a shared file system: a scan may not open 1000 files."""
    for number in range(50):
        make(tmp_path, "x", f"20261128-010203-{number:06x}")
    monkeypatch.setattr(Path, "open", None)
    monkeypatch.setattr("builtins.open", None)
    assert len(RunStore(tmp_path).list()) == 50


def test_folders_are_remembered_newest_first_and_once(tmp_path: Path) -> None:
    env = {"XDG_STATE_HOME": str(tmp_path / "state")}
    one, two = tmp_path / "one", tmp_path / "two"
    one.mkdir()
    two.mkdir()
    for folder in (one, two, one, one):
        remember_folder(folder, env)
    assert known_folders(env) == [one, two]
    two.rmdir()
    assert known_folders(env) == [one]


def test_folders_remembered_at_once_are_both_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    env = {"XDG_STATE_HOME": str(tmp_path / "state")}
    one, two = tmp_path / "one", tmp_path / "two"
    one.mkdir()
    two.mkdir()
    look = runs.known_folders

    def look_before_the_other(found: dict[str, str]) -> list[Path]:
        seen = look(found)
        monkeypatch.setattr(runs, "known_folders", look)
        remember_folder(two, env)
        return seen

    monkeypatch.setattr(runs, "known_folders", look_before_the_other)
    remember_folder(one, env)
    assert known_folders(env) == [one, two]


def test_home_that_cannot_be_written_costs_only_the_memory(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    env = {"XDG_STATE_HOME": str(tmp_path / "file")}
    remember_folder(tmp_path, env)
    assert known_folders(env) == []


def test_launch_record_is_read_back_where_it_lies(tmp_path: Path) -> None:
    run = RunPaths(make(tmp_path, "x", "20261128-010203-aaaaaa"))
    launch = Launch("20261128-010203-aaaaaa", "/cluster/x", "lab", "slurm", "x-1", 12.5, job_id="7")
    write_launch(run, launch)
    moved = tmp_path / "moved"
    run.root.rename(moved)
    found = read_launch(RunPaths(moved))
    assert found is not None
    assert (found.run_dir, found.root, found.job_id) == ("/cluster/x", str(moved), "7")


def test_record_of_a_later_version_may_have_more_keys(tmp_path: Path) -> None:
    run = RunPaths(make(tmp_path, "x", "20261128-010203-aaaaaa"))
    write_launch(run, Launch("a", "b", "c", "slurm", "d", 1.0))
    run.state.write_text(run.state.read_text().replace("{", '{"later": 1,', 1))
    assert read_launch(run) is not None


@pytest.mark.parametrize("text", ["", "{", "[]", '{"version": 1}', "null", "\x00"])
def test_damaged_record_is_a_finding(tmp_path: Path, text: str) -> None:
    run = RunPaths(make(tmp_path, "x", "20261128-010203-aaaaaa"))
    run.state.write_text(text)
    with pytest.raises(JobspecError, match=r"launch.json"):
        read_launch(run)


@pytest.mark.parametrize(
    ("key", "value"), [("job_id", 7), ("job_id", None), ("intent_time", "now"), ("submit_time", True)]
)
def test_record_with_a_value_of_another_kind_is_damaged(tmp_path: Path, key: str, value: object) -> None:
    run = RunPaths(make(tmp_path, "x", "20261128-010203-aaaaaa"))
    write_launch(run, Launch("a", "b", "c", "slurm", "d", 1.0))
    run.state.write_text(json.dumps({**json.loads(run.state.read_text()), key: value}))
    with pytest.raises(JobspecError) as caught:
        read_launch(run)
    assert caught.value.findings[0].why == f"`{key}` cannot be {value!r}"


def test_results_are_those_of_the_newest_attempt_that_has_any(tmp_path: Path) -> None:
    run = RunPaths(make(tmp_path, "x", "20261128-010203-aaaaaa"))
    assert read_results(run) is None
    for number, text in ((1, '{"attempt": 1}'), (2, '{"attempt": 2}'), (10, "")):
        run.attempt(number).mkdir(parents=True)
        if text:
            (run.attempt(number) / "results.json").write_text(text)
    assert run.attempts() == [1, 2, 10]
    assert read_results(run) is None  # the newest goes on, or was killed
    (run.attempt(10) / "results.json").write_text('{"attempt": 10}')
    assert read_results(run) == {"attempt": 10}


def test_runs_of_one_second_are_ordered_by_when_they_were_written(tmp_path: Path) -> None:
    """Ids end in random digits: of two runs in one second the later one is `last` all the same."""
    for age, tail in ((300, "ffffff"), (100, "000000"), (200, "777777")):
        spec = tmp_path / "x" / f"20261128-010203-{tail}" / "spec.yaml"
        spec.parent.mkdir(parents=True)
        spec.write_text("version: 1\n")
        os.utime(spec, (2_000_000_000 - age,) * 2)
    store = RunStore(tmp_path)
    assert [run.run_id[-6:] for run in store.list()] == ["000000", "777777", "ffffff"]
    assert store.find("last").run_id.endswith("000000")


@pytest.mark.parametrize("ref", ["~nobodyx/y", "x" * 5000, "a\0b"])
def test_text_that_can_name_no_folder_is_no_run(store: RunStore, ref: str) -> None:
    with pytest.raises(JobspecError) as caught:
        store.find(ref)
    assert caught.value.findings[0].rule.startswith("run.")


@pytest.mark.parametrize(("outcome", "ended"), [("ok", False), ("failed", True)])
def test_results_before_the_collection_are_no_end_of_a_run_that_went_well(
    tmp_path: Path, outcome: str, ended: bool
) -> None:
    run = RunPaths(make(tmp_path, "x", "20261128-010203-aaaaaa"))
    run.attempt(1).mkdir(parents=True)
    results = run.attempt(1) / "results.json"
    results.write_text(json.dumps({"outcome": outcome, "collecting": True}))
    assert (read_results(run) is not None) is ended
    results.write_text(json.dumps({"outcome": outcome}))
    assert read_results(run) is not None
