"""RLix: its fixed cache folder on a node that several runs and users share."""

from __future__ import annotations

import contextlib
import io
import os
import subprocess
import tempfile
from contextlib import ExitStack
from pathlib import Path

import pytest

from jobspec.runtime.drivers.rlix import cache as rlix_cache
from jobspec.triage import scan_lines
from tests.kits.other_user import as_nobody, in_child
from tests.kits.rlix_node_kit import driver, start


def linked(node: Path, **env: str) -> tuple[int, str]:
    """(exit code, what was said) of the command that makes the link."""
    process = start(node, [], env, stderr=subprocess.STDOUT)
    out, _ = process.communicate(timeout=60)
    return process.returncode, out


@pytest.mark.parametrize(
    ("before", "works"),
    [("nothing", True), ("this run's link", True), ("dangling link", True), ("empty folder", True),
     ("another cache", False), ("folder with files", False), ("the cache itself", True),
     ("a file", False), ("a link to itself", True)],
)  # fmt: skip
def test_cache_stands_where_rlix_looks(tmp_path: Path, before: str, works: bool) -> None:
    """RLix's actors look in one fixed folder, which an earlier or another run may have left."""
    place, cache = tmp_path / "rlix/shared/hf", tmp_path / "cache"
    place.parent.mkdir(parents=True)
    targets = {
        "this run's link": cache,
        "dangling link": tmp_path / "gone",
        "another cache": tmp_path / "other",
        "a link to itself": place,
    }
    (tmp_path / "other").mkdir()
    if before in targets:
        place.symlink_to(targets[before])
    elif before == "a file":
        place.touch()
    elif before != "nothing":
        place.mkdir()
    if before == "folder with files":
        (place / "model").touch()
    if before == "the cache itself":
        cache = place
    code, said = linked(tmp_path, HF_HOME=str(cache))
    assert (code == 0) is works, said
    assert (place.resolve() == cache.resolve()) is works
    assert place.exists()
    assert works or "is not this run's cache" in said
    assert list(place.parent.iterdir()) == [place]


@pytest.mark.parametrize("gone", [False, True])
@pytest.mark.parametrize("code", [0, 3])
def test_end_of_the_link_is_not_the_end_of_the_run(tmp_path: Path, code: int, gone: bool) -> None:
    """The driver's exit code stays, whoever has taken the folder away in the meantime."""
    folder = tmp_path / "rlix"
    script = f"test -d {folder}/shared/hf/; " + (f"rm -r {folder}; " if gone else "") + f"exit {code}"
    with driver(tmp_path, script) as run:
        assert run.wait(60) == code
    assert not folder.exists()


def test_run_that_ends_leaves_the_link_to_the_one_that_goes_on(tmp_path: Path) -> None:
    """Two runs of one user on one node: the first one's end must not take the second one's cache."""
    place = tmp_path / "rlix/shared/hf"
    (tmp_path / "go").mkdir()
    wait = f"echo ready; while test -d {tmp_path}/go; do sleep 0.05; done"
    with driver(tmp_path, wait) as other:
        assert other.stdout is not None and other.stdout.readline() == "ready\n"
        with driver(tmp_path, "true") as run:
            assert run.wait(60) == 0
        assert place.resolve() == (tmp_path / "cache").resolve()
        (tmp_path / "go").rmdir()
        assert other.wait(60) == 0
    assert not place.parent.exists()


def test_runs_that_start_and_end_at_the_same_time_each_have_the_cache(tmp_path: Path) -> None:
    with ExitStack() as stack:
        cache = f"test -d {tmp_path}/rlix/shared/hf/"
        script = f"{cache}; sleep 0.0$((RANDOM % 9)); {cache}"
        runs = [stack.enter_context(driver(tmp_path, script)) for _ in range(12)]
        assert [run.wait(100) for run in runs] == [0] * 12
    assert not (tmp_path / "rlix").exists()
    assert list((tmp_path / "cache").iterdir()) == [], "no link was made inside the cache"


def test_another_runs_cache_is_left_alone(tmp_path: Path) -> None:
    """Neither the link of a run with another cache, nor that run: ours does not begin."""
    with driver(tmp_path, "echo ready; sleep 300") as other:
        assert other.stdout is not None and other.stdout.readline() == "ready\n"
        with driver(tmp_path, "touch begun", {"HF_HOME": str(tmp_path / "mine")}) as run:
            assert run.wait(60) == 1
        assert (tmp_path / "rlix/shared/hf").resolve() == (tmp_path / "cache").resolve()
        other.terminate()
    assert not (tmp_path / "begun").exists()
    assert not (tmp_path / "rlix").exists()


def test_link_that_vanished_is_not_taken_for_anothers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A run ends right after its link was found good: the next one holds it under the lock."""
    monkeypatch.setattr(rlix_cache, "ROOT", tmp_path / "rlix")
    place, cache = tmp_path / "rlix/shared/hf", tmp_path / "cache"
    read, looks = rlix_cache._leads_to, list[Path]()

    def vanishing(where: Path) -> Path | None:
        looks.append(where)
        if len(looks) == 3:  # missing, made, gone
            place.unlink()
        return read(where)

    monkeypatch.setattr(rlix_cache, "_leads_to", vanishing)
    rlix_cache.link(cache)
    assert not place.exists()
    with rlix_cache.held(cache):
        assert place.resolve() == cache.resolve()
    assert not (tmp_path / "rlix").exists()


def test_folder_without_locks_keeps_the_link(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rlix_cache, "ROOT", tmp_path / "rlix")

    def refused(*_: object) -> None:
        raise OSError(37, "No locks available")

    monkeypatch.setattr(rlix_cache.fcntl, "flock", refused)
    with rlix_cache.held(tmp_path / "cache"):
        pass
    assert (tmp_path / "rlix/shared/hf").resolve() == (tmp_path / "cache").resolve()


@pytest.mark.skipif(os.geteuid() != 0, reason="acts as two users")
def test_folder_of_another_user_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """RLix writes below `/tmp/rlix`, whose name is fixed: the user who came first owns it."""
    with tempfile.TemporaryDirectory() as name:
        node = Path(name)
        node.chmod(0o777)
        monkeypatch.setattr(rlix_cache, "ROOT", node / "rlix")
        monkeypatch.setenv("HF_HOME", str(node / "cache"))
        (node / "rlix/shared").mkdir(parents=True)
        code, said = in_child(attempted, as_nobody)
        told = said.replace(str(node), "/tmp")
        assert (node / "rlix/shared").is_dir()
    assert code == 1
    assert "jobspec: /tmp/rlix, which RLix writes to, is of root" in told
    assert [found.signature for found in scan_lines(told.splitlines())] == ["rlix.cache"]


def attempted() -> tuple[int, str]:
    """(exit code, what was said) of `rlix_cache.main`."""
    said = io.StringIO()
    with contextlib.redirect_stderr(said):
        return rlix_cache.main(), said.getvalue()
