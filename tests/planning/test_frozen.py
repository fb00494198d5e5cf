"""Frozen copies of checkouts, on real repositories."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from jobspec.finding import JobspecError
from jobspec.planning import frozen
from jobspec.planning.frozen import freeze, keep
from jobspec.runtime.checkouts.code_state import code_state
from jobspec.runtime.checkouts.git import git_state
from tests.kits.checkout_kit import git, write_checkout


@pytest.fixture
def repo(tmp_path: Path) -> Path:
    write_checkout(tmp_path / "core", {"core.py": "v = 1\n"})
    files = {"pkg/mod.py": "x = 1\n", "run.sh": "echo\n", "old.py": "", ".gitignore": "data/\n"}
    made = write_checkout(tmp_path / "repo", files)
    git(made, "submodule", "add", "-q", str(tmp_path / "core"), "third/core")
    git(made, "commit", "-qm", "submodule")
    return made


def frozen_copy(repo: Path, runs: Path) -> Path:
    return freeze("repo", git_state(repo), code_state(str(repo)), str(runs))[0]


def test_copy_has_commit_edits_and_submodules_and_stays_as_it_is(repo: Path, tmp_path: Path) -> None:
    (repo / "pkg/mod.py").write_text("x = 2\n")
    (repo / "run.sh").chmod(0o755)
    (repo / "old.py").unlink()
    (repo / "new.txt").write_text("new\n")
    (repo / "third/core/core.py").write_text("v = 2\n")
    was = code_state(str(repo))
    copy = frozen_copy(repo, tmp_path / "runs")
    (repo / "pkg/mod.py").write_text("x = 3\n")
    assert (copy / "pkg/mod.py").read_text() == "x = 2\n"
    assert (copy / "third/core/core.py").read_text() == "v = 2\n"
    assert (copy / "new.txt").exists() and not (copy / "old.py").exists()
    assert os.access(copy / "run.sh", os.X_OK)
    made = code_state(str(copy))
    assert (made.commit, made.changes) == (was.commit, was.changes)


def test_moved_submodule_is_copied_at_its_own_commit(repo: Path, tmp_path: Path) -> None:
    (repo / "third/core/core.py").write_text("v = 7\n")
    git(repo / "third/core", "commit", "-qam", "moved")
    copy = frozen_copy(repo, tmp_path / "runs")
    assert (copy / "third/core/core.py").read_text() == "v = 7\n"


def test_ignored_data_is_not_copied(repo: Path, tmp_path: Path) -> None:
    (repo / "data").mkdir()
    with (repo / "data/weights.bin").open("wb") as file:
        file.truncate(1 << 40)  # sparse: a terabyte that no disk here has
    copy = frozen_copy(repo, tmp_path / "runs")
    assert not (copy / "data").exists()


def test_same_code_shares_a_copy_and_other_code_has_its_own(repo: Path, tmp_path: Path) -> None:
    first = frozen_copy(repo, tmp_path / "runs")
    inode = (first / "pkg/mod.py").stat().st_ino
    assert frozen_copy(repo, tmp_path / "runs") == first
    assert (first / "pkg/mod.py").stat().st_ino == inode
    (repo / "third/core/core.py").write_text("v = 9\n")
    assert frozen_copy(repo, tmp_path / "runs") != first
    assert [path for path in (tmp_path / "runs/.frozen").iterdir() if path.name.startswith(".")] == []


def test_copy_that_a_run_changed_is_not_used_again(repo: Path, tmp_path: Path) -> None:
    copy = frozen_copy(repo, tmp_path / "runs")
    (copy / "outputs").mkdir()
    (copy / "outputs/config.yaml").write_text("written by a run")
    assert frozen_copy(repo, tmp_path / "runs") == copy
    (copy / "run.sh").write_text("changed by a run\n")
    with pytest.raises(JobspecError) as refused:
        frozen_copy(repo, tmp_path / "runs")
    (finding,) = refused.value.findings
    assert "run.sh" in finding.why and f"remove `{copy}`" in finding.fix


def test_private_file_stays_out_of_the_copy(repo: Path, tmp_path: Path) -> None:
    (repo / "secrets.yaml").write_text("a: committed\n")
    git(repo, "add", "-f", "secrets.yaml")
    git(repo, "commit", "-qm", "secrets")
    (repo / "secrets.yaml").write_text("a: edited, and longer\n")
    copy = frozen_copy(repo, tmp_path / "runs")
    assert (copy / "secrets.yaml").read_text() == "a: committed\n"


def test_path_below_the_root_stays_below_the_copy(repo: Path, tmp_path: Path) -> None:
    inner = repo / "pkg"
    copy, place = freeze("repo", git_state(inner), code_state(str(inner)), str(tmp_path / "runs"))
    assert place == copy / "pkg" and (place / "mod.py").is_file()


def test_copy_goes_when_its_last_run_is_gone(repo: Path, tmp_path: Path) -> None:
    runs = tmp_path / "runs"
    copy = frozen_copy(repo, runs)
    (repo / "pkg/mod.py").write_text("x = 8\n")
    other = frozen_copy(repo, runs)
    (runs / "c").mkdir()
    for name in ("a", "b"):
        (runs / name).mkdir()
        keep([copy, None], runs / name)
    (runs / "a").rmdir()
    long_ago = time.time() - 2 * frozen.UNUSED_FOR_S
    os.utime(copy, (long_ago, long_ago))
    keep([other], runs / "c")
    assert copy.is_dir(), "a run uses it"
    (runs / "b").rmdir()
    os.utime(copy)
    keep([other], runs / "c")
    assert copy.is_dir(), "another command may be about to use it"
    os.utime(copy, (long_ago, long_ago))
    keep([other], runs / "c")
    assert sorted(path.name for path in copy.parent.iterdir()) == [other.name, f"{other.name}.users"]


def test_what_cannot_be_frozen_says_why(repo: Path, tmp_path: Path) -> None:
    (tmp_path / "plain").mkdir()
    with pytest.raises(JobspecError) as refused:
        frozen_copy(tmp_path / "plain", tmp_path / "runs")
    assert "not a git repository" in refused.value.findings[0].why
    state, code = git_state(repo), code_state(str(repo))
    (repo / "pkg/mod.py").write_text("x = 4\n")
    with pytest.raises(JobspecError) as changed:
        freeze("repo", state, code, str(tmp_path / "runs"))
    assert "pkg/mod.py" in changed.value.findings[0].why
    assert list((tmp_path / "runs/.frozen").iterdir()) == []
