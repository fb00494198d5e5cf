"""What differs in a checkout between submission and start, on real repositories."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

import pytest

from jobspec.runtime.checkouts import code_state as module
from jobspec.runtime.checkouts.code_state import CodeState, code_state, differences
from tests.kits.checkout_kit import git, write_checkout
from tests.kits.other_user import as_nobody, in_child


@pytest.fixture
def repo(tmp_path: Path) -> Path:
    files = {"mod.py": "x = 1\n", "run.sh": "echo\n", ".gitignore": "out/\n*.pyc\n"}
    return write_checkout(tmp_path / "repo", files)


def since(repo: Path, was: CodeState) -> tuple[str, ...]:
    return differences(was.commit, was.changes, code_state(str(repo)), str(repo))


def test_state_has_commit_branch_and_a_mark_of_each_uncommitted_file(repo: Path) -> None:
    clean = code_state(str(repo))
    assert (clean.commit, clean.changes, clean.changes_sha256) == (git(repo, "rev-parse", "HEAD"), {}, "")
    assert clean.branch == git(repo, "symbolic-ref", "--short", "HEAD")
    (repo / "mod.py").write_text("x = 2\n")
    (repo / "new.py").write_text("y = 1\n")
    (repo / "run.sh").unlink()
    dirty = code_state(str(repo))
    assert sorted(dirty.changes) == ["mod.py", "new.py", "run.sh"]
    assert dirty.changes["run.sh"] == "gone"
    assert len(dirty.changes_sha256) == 64
    assert since(repo, dirty) == ()


def test_every_kind_of_edit_is_named(repo: Path) -> None:
    (repo / "kept.py").write_text("z = 1\n")
    was = code_state(str(repo))
    (repo / "mod.py").write_text("x = 2\n")
    (repo / "run.sh").chmod(0o755)
    (repo / "kept.py").write_text("z = 2\n")
    (repo / "shadow.py").write_text("")
    assert since(repo, was) == ("kept.py", "mod.py", "run.sh", "shadow.py")


def test_second_edit_of_an_edited_file_is_named(repo: Path) -> None:
    (repo / "mod.py").write_text("x = 2\n")
    was = code_state(str(repo))
    (repo / "mod.py").write_text("x = 3\n")
    assert since(repo, was) == ("mod.py",)


def test_what_a_run_itself_writes_is_no_change(repo: Path) -> None:
    was = code_state(str(repo))
    for name in (
        "__pycache__/mod.cpython-311.pyc",
        "out/a.py",
        "wandb/run/config.yaml",
        "train.log",
        "m.json",
    ):
        (repo / name).parent.mkdir(parents=True, exist_ok=True)
        (repo / name).write_text("x")
    assert since(repo, was) == ()


def test_untracked_results_of_an_earlier_run_may_change(repo: Path) -> None:
    for name in ("metrics.json", "run.log"):
        (repo / name).write_text("1")
    (repo / "mine.yaml").write_text("a: 1\n")
    was = code_state(str(repo))
    for name in ("metrics.json", "run.log"):
        (repo / name).write_text("2")
    assert since(repo, was) == ()
    (repo / "mine.yaml").write_text("a: 2\n")
    assert since(repo, was) == ("mine.yaml",)


def test_touched_file_with_the_same_text_is_no_change(repo: Path) -> None:
    was = code_state(str(repo))
    (repo / "mod.py").unlink()
    (repo / "mod.py").write_text("x = 1\n")
    assert since(repo, was) == ()


def test_another_commit_names_the_files_between(repo: Path) -> None:
    was = code_state(str(repo))
    (repo / "mod.py").write_text("x = 2\n")
    git(repo, "commit", "-qam", "second")
    assert since(repo, was) == ("mod.py",)


def test_edit_in_a_submodule_is_named_even_when_it_was_edited_before(repo: Path, tmp_path: Path) -> None:
    write_checkout(tmp_path / "core", {"core.py": "v = 1\n", "note.txt": "n\n"})
    git(repo, "submodule", "add", "-q", str(tmp_path / "core"), "third/core")
    git(repo, "commit", "-qm", "submodule")
    assert code_state(str(repo)).changes == {}
    (repo / "third/core/core.py").write_text("v = 2\n")
    was = code_state(str(repo))
    assert list(was.changes) == ["third/core/core.py"]
    (repo / "third/core/core.py").write_text("v = 3\n")
    (repo / "third/core/run.log").write_text("written by a run\n")
    assert since(repo, was) == ("third/core/core.py",)
    git(repo / "third/core", "commit", "-qam", "moved")
    assert since(repo, was) == ("third/core", "third/core/core.py")


def test_settings_of_the_user_do_not_change_a_state(repo: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (repo / "mod.py").write_text("x = 2\n")
    (repo / "run.sh").write_text("echo 2\n")
    (repo / "mine.py").write_text("")
    was = code_state(str(repo))
    settings, ignored = repo.parent / "gitconfig", repo.parent / "ignored"
    ignored.write_text("mine.py\n")
    settings.write_text(
        f"[core]\n excludesFile = {ignored}\n"
        "[diff]\n algorithm = histogram\n context = 9\n mnemonicPrefix = true\n"
        "[status]\n showUntrackedFiles = no\n relativePaths = false\n branch = true\n"
    )
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", str(settings))
    assert code_state(str(repo)) == was


def test_file_of_a_filter_is_not_taken_for_changed(repo: Path) -> None:
    (repo / ".gitattributes").write_text("*.weights filter=lfs\n")
    (repo / "a.weights").write_text("pointer\n")
    git(repo, "add", "-A")
    git(repo, "commit", "-qm", "weights")
    (repo / "a.weights").write_text("the real thing\n")
    assert code_state(str(repo)).changes == {}


def test_private_file_has_no_digest(repo: Path) -> None:
    (repo / "secrets.yaml").write_text("password: 1234\n")
    assert code_state(str(repo)).changes == {}
    git(repo, "add", "-A")
    assert code_state(str(repo)).changes == {"secrets.yaml": "private"}


def test_name_that_is_no_text_does_not_stop_it(repo: Path) -> None:
    Path(str(repo) + "/caf\udce9.py").write_text("")
    assert len(code_state(str(repo)).changes) == 1


def test_what_cannot_be_told_has_its_reason(
    repo: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "plain").mkdir()
    assert "not a git repository" in code_state(str(tmp_path / "plain")).unknown
    assert code_state(str(tmp_path / "absent")).unknown == f"`{tmp_path}/absent` is not there"
    git(repo, "worktree", "add", "-q", str(tmp_path / "tree"))
    assert code_state(str(tmp_path / "tree")).unknown == ""
    repo.rename(tmp_path / "not-mounted")
    assert "not a git repository" in code_state(str(tmp_path / "tree")).unknown
    monkeypatch.setattr(module, "MAX_CHANGES", 1)
    moved = tmp_path / "not-mounted"
    for name in ("a.py", "b.py"):
        (moved / name).write_text("")
    assert "more than 1 uncommitted files" in code_state(str(moved)).unknown
    monkeypatch.setenv("PATH", str(tmp_path))
    assert code_state(str(moved)).unknown == "`git` is not installed"


@pytest.mark.skipif(os.getuid() != 0, reason="becomes another user")
def test_files_of_another_user_are_read_where_the_run_trusts_them() -> None:
    """In a container without the user's own number git would refuse the checkout."""
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)
        repo = write_checkout(Path(folder) / "repo", {"mod.py": "x = 1\n"})
        (repo / "mod.py").write_text("x = 2\n")
        refused = in_child(lambda: code_state(str(repo)).unknown, as_nobody)
        read = in_child(lambda: sorted(code_state(str(repo), module.TRUSTED).changes), as_nobody)
    assert "dubious ownership" in refused
    assert read == ["mod.py"]


def test_pipe_in_place_of_a_file_is_a_change_and_no_wait(repo: Path) -> None:
    before = code_state(str(repo))
    (repo / "mod.py").unlink()
    os.mkfifo(repo / "mod.py")
    assert differences(before.commit, before.changes, code_state(str(repo)), str(repo)) == ("mod.py",)
