"""Clones by URL, on real repositories: which folder a spec's URL and ref get, and what is refused."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from jobspec.finding import JobspecError
from jobspec.planning import clones
from jobspec.planning.clones import Source, commit_of, fetched, known_clone
from jobspec.planning.repos import read_repos
from jobspec.spec.load import parse_spec

Make = Callable[[str], Source]


def git(folder: Path, *args: str) -> str:
    who = ["-c", "user.name=ann", "-c", "user.email=ann@example.org"]
    done = subprocess.run(["git", "-C", str(folder), *who, *args], capture_output=True, text=True, check=True)
    return done.stdout.strip()


def commit(folder: Path, text: str) -> str:
    (folder / "who.py").write_text(f"WHO = {text!r}\n")
    git(folder, "add", ".")
    git(folder, "commit", "-qm", text)
    return git(folder, "rev-parse", "HEAD")


@pytest.fixture
def make(tmp_path: Path) -> Make:
    """A repository with one commit, as a source for its branch `main`."""

    def make(name: str) -> Source:
        (tmp_path / name).mkdir()
        git(tmp_path / name, "init", "-q", "-b", "main")
        commit(tmp_path / name, name)
        return Source(f"file://{tmp_path}/{name}", "main", "lib", tmp_path / "runs" / ".checkouts")

    return make


def origin(source: Source) -> Path:
    return Path(source.url.removeprefix("file://"))


def who(folder: Path) -> str:
    return (folder / "who.py").read_text().split("'")[1]


def test_two_urls_of_one_name_and_ref_have_their_own_code(make: Make) -> None:
    found = [fetched(make(name)) for name in ("one", "two")]
    assert [(who(folder), findings) for folder, findings in found] == [("one", []), ("two", [])]


def test_a_moved_branch_gets_a_clone_of_its_own(make: Make) -> None:
    source = make("one")
    before = fetched(source)[0]
    assert fetched(source) == (before, []) and known_clone(source) == before
    after = commit(origin(source), "later")
    folder = fetched(source)[0]
    assert (who(before), who(folder)) == ("one", "later")
    assert commit_of(folder) == after[:12] and known_clone(source) == folder


def test_branch_tag_commit_and_its_beginning_name_one_clone(make: Make) -> None:
    source = make("one")
    head = git(origin(source), "rev-parse", "HEAD")
    git(origin(source), "tag", "-a", "v1", "-m", "x")
    git(origin(source), "branch", "feature/x")
    commit(origin(source), "later")
    sources = [replace(source, ref=ref) for ref in ("feature/x", "v1", head, head[:9])]
    folders = {fetched(item)[0] for item in sources}
    assert [commit_of(folder) for folder in folders] == [head[:12]]
    assert {known_clone(item) for item in sources} == folders
    assert known_clone(source) is None  # `main` as this clone knows it is at another commit


@pytest.mark.parametrize("digits", [40, 8])
def test_a_commit_that_is_here_needs_no_remote(digits: int, make: Make) -> None:
    source = make("one")
    source = replace(source, ref=git(origin(source), "rev-parse", "HEAD")[:digits])
    folder = fetched(source)[0]
    shutil.rmtree(origin(source))
    assert fetched(source) == (folder, [])


def test_an_older_clone_is_taken_when_the_remote_is_away_and_said(make: Make) -> None:
    source = make("one")
    folder = fetched(source)[0]
    shutil.rmtree(origin(source))
    known, findings = fetched(source)
    assert known == folder
    assert [(item.rule, item.is_error) for item in findings] == [("repo.older-clone", False)]
    assert commit_of(folder) in findings[0].what


@pytest.mark.parametrize("ref", ["nowhere", "--orphan=x", "--upload-pack=touch x"])
def test_a_failed_clone_says_why_and_leaves_nothing(ref: str, make: Make) -> None:
    source = replace(make("one"), ref=ref)
    with pytest.raises(JobspecError) as caught:
        fetched(source)
    assert ref in caught.value.findings[0].why
    assert list(source.parent.iterdir()) == []


def test_clone_that_another_command_makes_meanwhile_is_taken(
    make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    source, clone = make("one"), clones._clone_at

    def second_clone(*args: Any) -> str:
        monkeypatch.setattr(clones, "_clone_at", clone)
        monkeypatch.setattr(os, "getpid", lambda: 4711)  # a process of its own has its own scratch folder
        fetched(source)
        monkeypatch.undo()
        return clone(*args)

    monkeypatch.setattr(clones, "_clone_at", second_clone)
    folder = fetched(source)[0]
    assert list(source.parent.iterdir()) == [folder]


def other_origin(folder: Path) -> None:
    git(folder, "remote", "set-url", "origin", "https://example.org/other")


def other_commit(folder: Path) -> None:
    commit(folder, "other")


def no_git(folder: Path) -> None:
    shutil.rmtree(folder / ".git")


def other_owner(folder: Path) -> None:
    """Git itself reads no repository of another user, so its commit and URL are not known."""
    for path in (folder, *folder.rglob("*")):
        os.chown(path, 65534, 65534, follow_symlinks=False)


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (other_origin, "but of https://example.org/other"),
        (other_commit, " is at "),
        (no_git, "is no clone of"),
        pytest.param(
            other_owner,
            "is no clone of",
            marks=pytest.mark.skipif(os.geteuid() != 0, reason="only root makes files of another user"),
        ),
    ],
)
def test_a_folder_that_is_no_longer_that_clone_is_refused(
    change: Callable[[Path], None], told: str, make: Make, tmp_path: Path
) -> None:
    source = make("one")
    source = replace(source, ref=git(origin(source), "rev-parse", "HEAD"))
    change(fetched(source)[0])
    text = "version: 1\nname: x\nframework: command\ntrain: {command: [x]}\n"
    text += f"repos: [{{name: lib, url: '{source.url}', ref: {source.ref}}}]\n"
    spec = parse_spec(text, "spec.yaml", env={}).spec
    _, findings = read_repos(spec, tmp_path, str(tmp_path / "runs"), fetch=True)
    (finding,) = (item for item in findings if item.is_error)
    assert finding.rule == "repo.other-clone" and told in finding.what
