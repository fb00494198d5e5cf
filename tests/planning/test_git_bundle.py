"""Bundles of commits that nobody else has, and checkouts made of them, on real repositories."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from jobspec.finding import JobspecError
from jobspec.planning import git_bundle
from jobspec.planning.git_bundle import Sealed, file_sha256, restore, unpushed, write_bundle
from jobspec.runtime.checkouts.git import git_state
from tests.kits.checkout_kit import git, write_checkout


@pytest.fixture
def origin(tmp_path: Path) -> Path:
    return write_checkout(tmp_path / "origin", {"pkg/mod.py": "x = 1\n", "big.txt": "y\n" * 9})


@pytest.fixture
def clone(origin: Path, tmp_path: Path) -> Path:
    """A clone with one commit that was never pushed, and an edit."""
    git(tmp_path, "clone", "-q", str(origin), "clone")
    made = tmp_path / "clone"
    (made / "pkg/mod.py").write_text("x = 2\n")
    git(made, "commit", "-qam", "two")
    (made / "pkg/mod.py").write_text("x = 3\n")
    (made / "new.py").write_text("new = 1\n")
    return made


def saved_patch(checkout: Path, target: Path) -> Sealed:
    state = git_state(checkout)
    target.write_bytes(state.diff)
    return Sealed(target, state.diff_sha256)


def refused(problem: pytest.ExceptionInfo[JobspecError]) -> str:
    (finding,) = problem.value.findings
    assert finding.fix
    return f"{finding.rule}: {finding.what}: {finding.why}"


def test_commit_and_edit_come_back_from_remote_bundle_and_patch(
    clone: Path, origin: Path, tmp_path: Path
) -> None:
    commit = git(clone, "rev-parse", "HEAD")
    assert unpushed(clone) == (commit,)
    bundle = write_bundle(clone, tmp_path / "code.bundle")
    assert bundle is not None and bundle.sha256 == file_sha256(tmp_path / "code.bundle")
    patch = saved_patch(clone, tmp_path / "code.diff")
    restore(str(origin), tmp_path / "made", commit, bundle, patch)
    assert (tmp_path / "made/pkg/mod.py").read_text() == "x = 3\n"
    assert (tmp_path / "made/new.py").read_text() == "new = 1\n"
    assert git_state(tmp_path / "made").diff_sha256 == git_state(clone).diff_sha256
    assert git_state(tmp_path / "made").commit == commit


def test_pushed_checkout_has_no_bundle(clone: Path, origin: Path, tmp_path: Path) -> None:
    git(origin, "checkout", "-q", "--detach")
    git(clone, "push", "-q", "origin", "HEAD:refs/heads/other")
    assert write_bundle(clone, tmp_path / "code.bundle") is None
    assert not (tmp_path / "code.bundle").exists()
    restore(str(origin), tmp_path / "made", git(clone, "rev-parse", "HEAD"))
    assert (tmp_path / "made/pkg/mod.py").read_text() == "x = 2\n"


def test_without_a_remote_the_bundle_has_the_whole_history(origin: Path, tmp_path: Path) -> None:
    commit = git(origin, "rev-parse", "HEAD")
    restore("", tmp_path / "made", commit, write_bundle(origin, tmp_path / "whole.bundle"))
    assert (tmp_path / "made/pkg/mod.py").read_text() == "x = 1\n"


def test_known_commits_are_not_bundled_again(clone: Path, tmp_path: Path) -> None:
    first, second = git(clone, "rev-parse", "HEAD~"), git(clone, "rev-parse", "HEAD")
    assert unpushed(clone, [first, "0" * 40]) == (second,)
    assert unpushed(clone, [second]) == ()
    assert unpushed(clone, []) == (second, first)
    restore("", tmp_path / "made", second, write_bundle(clone, tmp_path / "whole.bundle", []))


def test_bundle_over_the_limit_is_refused_with_both_sizes(clone: Path, tmp_path: Path) -> None:
    with pytest.raises(JobspecError) as problem:
        write_bundle(clone, tmp_path / "code.bundle", limit=10)
    assert "its 1 commits take" in refused(problem) and "10 are allowed" in refused(problem)
    assert problem.value.findings[0].fix == "push its commits"
    with pytest.raises(JobspecError) as problem:  # for a cluster a remote is no help
        write_bundle(clone, tmp_path / "code.bundle", [], limit=10)
    assert problem.value.findings[0].fix == "put a checkout on the cluster"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["clone", "origin"]


def test_changed_file_is_not_used(clone: Path, origin: Path, tmp_path: Path) -> None:
    bundle = write_bundle(clone, tmp_path / "code.bundle")
    assert bundle is not None
    with bundle.path.open("ab") as file:
        file.write(b"x")
    with pytest.raises(JobspecError) as problem:
        restore(str(origin), tmp_path / "made", git(clone, "rev-parse", "HEAD"), bundle)
    assert f"its SHA-256 is not {bundle.sha256}" in refused(problem)
    missing = Sealed(tmp_path / "none.diff", "0" * 64)
    with pytest.raises(JobspecError) as problem:
        restore(str(origin), tmp_path / "made", git(clone, "rev-parse", "HEAD"), None, missing)
    assert "it is not there" in refused(problem)
    assert not (tmp_path / "made").exists()


def test_patch_that_changes_after_it_was_compared_is_not_used(
    clone: Path, origin: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bundle, patch = write_bundle(clone, tmp_path / "b"), saved_patch(clone, tmp_path / "code.diff")
    fill = git_bundle._fill

    def swapped(*words: Any) -> None:
        fill(*words)
        patch.path.write_bytes(patch.path.read_bytes().replace(b"new = 1", b"new = 9"))

    monkeypatch.setattr(git_bundle, "_fill", swapped)
    restore(str(origin), tmp_path / "made", git(clone, "rev-parse", "HEAD"), bundle, patch)
    assert (tmp_path / "made/new.py").read_text() == "new = 1\n"


def test_commit_that_neither_has_is_told_and_nothing_stays(clone: Path, origin: Path, tmp_path: Path) -> None:
    with pytest.raises(JobspecError) as problem:
        restore(str(origin), tmp_path / "made", git(clone, "rev-parse", "HEAD"))
    assert f"is not in {origin}" in refused(problem)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["clone", "origin"]


def test_patch_that_does_not_fit_is_told_and_nothing_stays(clone: Path, origin: Path, tmp_path: Path) -> None:
    patch = saved_patch(clone, tmp_path / "code.diff")
    (origin / "pkg/mod.py").write_text("other = 1\n")
    git(origin, "commit", "-qam", "other")
    with pytest.raises(JobspecError) as problem:
        restore(str(origin), tmp_path / "made", git(origin, "rev-parse", "HEAD"), None, patch)
    assert "`git apply` failed" in refused(problem) and "mod.py" in refused(problem)
    assert not (tmp_path / "made").exists()


def test_end_of_a_shallow_clone_cannot_be_bundled(origin: Path, tmp_path: Path) -> None:
    (origin / "big.txt").write_text("z\n")
    git(origin, "commit", "-qam", "more")
    git(tmp_path, "clone", "-q", "--depth=1", f"file://{origin}", "shallow")
    shallow = tmp_path / "shallow"
    assert write_bundle(shallow, tmp_path / "code.bundle") is None
    git(shallow, "remote", "remove", "origin")
    with pytest.raises(JobspecError) as problem:
        write_bundle(shallow, tmp_path / "code.bundle")
    assert "shallow clone" in refused(problem)
    assert problem.value.findings[0].fix.endswith("or push its commits")
    with pytest.raises(JobspecError) as problem:  # as it is sent to a cluster that has no copy yet
        write_bundle(shallow, tmp_path / "code.bundle", [])
    assert problem.value.findings[0].fix == (
        "run `git fetch --unshallow` in it, or put a checkout on the cluster"
    )
    (shallow / "big.txt").write_text("w\n")
    git(shallow, "commit", "-qam", "own")
    own = write_bundle(shallow, tmp_path / "own.bundle", [git(shallow, "rev-parse", "HEAD~")])
    restore(str(origin), tmp_path / "made", git(shallow, "rev-parse", "HEAD"), own)
    assert (tmp_path / "made/big.txt").read_text() == "w\n"
