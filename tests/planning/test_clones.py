"""Clones by URL, on real repositories: which folder a spec's URL and ref get, and what is refused."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from jobspec.finding import JobspecError
from jobspec.planning.clones import Source, asked, cache_below, commit_of, fetched, known_commit
from jobspec.planning.repos import read_repos
from jobspec.spec.job import JobSpec
from jobspec.spec.load import parse_spec
from tests.kits.checkout_kit import git

Make = Callable[[str], Source]


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


def asked_commit(source: Source) -> str:
    commit, findings = asked(source)
    assert findings == []
    return commit


def test_two_urls_of_one_name_and_ref_have_their_own_code(make: Make) -> None:
    found = [fetched(make(name)) for name in ("one", "two")]
    assert [(who(folder), findings) for folder, findings in found] == [("one", []), ("two", [])]


def test_a_moved_branch_gets_a_checkout_of_its_own_from_the_same_mirror(make: Make) -> None:
    source = make("one")
    before = fetched(source)[0]
    assert fetched(source) == (before, [])
    after = commit(origin(source), "later")
    assert (known_commit(source)[:12], asked_commit(source)) == (commit_of(before), after)
    folder = fetched(source)[0]
    assert (who(before), who(folder)) == ("one", "later")
    assert commit_of(folder) == after[:12] and known_commit(source) == after
    assert [path.name for path in source.parent.glob("*.git")] == [source.mirror.name]


def test_branch_tag_commit_and_its_beginning_name_one_checkout(make: Make) -> None:
    source = make("one")
    head = git(origin(source), "rev-parse", "HEAD")
    git(origin(source), "tag", "-a", "v1", "-m", "x")
    git(origin(source), "branch", "feature/x")
    git(origin(source), "update-ref", "refs/pull/1/head", head)
    commit(origin(source), "later")
    refs = ("feature/x", "v1", "refs/pull/1/head", head)
    sources = [replace(source, ref=ref) for ref in refs]
    assert {asked_commit(item) for item in sources} == {head} and not source.parent.exists()
    short = replace(source, ref=head[:9])
    assert asked(short) == ("", [])  # no server tells
    assert {fetched(item)[0] for item in (*sources, short)} == {source.folder(head)}
    assert asked(short) == (head, [])


def test_a_commit_that_no_branch_has_is_fetched_by_its_name_and_stays(make: Make) -> None:
    source = make("one")
    git(origin(source), "checkout", "-qb", "gone")
    lost = commit(origin(source), "lost")
    git(origin(source), "checkout", "-q", "main")
    git(origin(source), "branch", "-qD", "gone")
    fetched(source)
    folder = fetched(replace(source, ref=lost))[0]
    assert who(folder) == "lost"
    shutil.rmtree(folder)
    git(source.mirror, "update-ref", "-d", f"refs/jobspec/asked/{lost}")
    shutil.rmtree(origin(source))
    assert who(fetched(replace(source, ref=lost))[0]) == "lost"


def test_a_branch_that_is_gone_is_told(make: Make) -> None:
    source = make("one")
    git(origin(source), "branch", "feature")
    fetched(replace(source, ref="feature"))
    git(origin(source), "branch", "-D", "feature")
    git(origin(source), "branch", "feature/x")  # its name is a folder of the mirror's now
    gone = replace(source, ref="feature")
    known, findings = asked(gone)
    assert (known, [item.rule for item in findings]) == ("", ["repo.ref-unknown"])
    with pytest.raises(JobspecError):
        fetched(gone)
    assert who(fetched(replace(source, ref="feature/x"))[0]) == "one"


@pytest.mark.parametrize("digits", [40, 8])
def test_a_commit_that_is_here_needs_no_remote(digits: int, make: Make) -> None:
    source = make("one")
    head = git(origin(source), "rev-parse", "HEAD")
    source = replace(source, ref=head[:digits])
    folder = fetched(source)[0]
    shutil.rmtree(origin(source))
    assert fetched(source) == (folder, []) and asked_commit(source) == head
    shutil.rmtree(folder)
    assert (fetched(source), who(folder)) == ((folder, []), "one")


def test_an_older_commit_is_taken_when_the_remote_is_away_and_said(make: Make) -> None:
    source = make("one")
    folder = fetched(source)[0]
    shutil.rmtree(origin(source))
    for known, findings in (fetched(source), asked(source)):
        assert known in (folder, known_commit(source))
        assert [(item.rule, item.is_error) for item in findings] == [("repo.older-clone", False)]
        assert commit_of(folder) in findings[0].what


def test_a_server_that_does_not_answer_is_a_warning_before_anything_is_fetched(make: Make) -> None:
    source = make("one")
    shutil.rmtree(origin(source))
    known, (finding,) = asked(source)
    assert (known, finding.rule, finding.is_error) == ("", "repo.not-asked", False)
    assert not source.parent.exists()


@pytest.mark.parametrize("ref", ["nowhere", "--orphan=x", "--upload-pack=touch x"])
def test_a_failed_fetch_says_why_and_leaves_nothing(ref: str, make: Make) -> None:
    source = replace(make("one"), ref=ref)
    with pytest.raises(JobspecError) as caught:
        fetched(source)
    assert ref in caught.value.findings[0].why
    assert [path.name for path in source.parent.iterdir()] == [f"{source.mirror.name}.lock"]


def test_a_shallow_server_gives_what_it_has(make: Make, tmp_path: Path) -> None:
    source = make("one")
    first = git(origin(source), "rev-parse", "HEAD")
    head = commit(origin(source), "later")
    git(tmp_path, "clone", "-q", "--bare", "--depth=1", source.url, "shallow")
    shallow = replace(source, url=f"file://{tmp_path}/shallow")
    assert who(fetched(shallow)[0]) == "later"
    assert fetched(replace(shallow, ref=head))[0] == shallow.folder(head)
    with pytest.raises(JobspecError) as caught:
        fetched(replace(shallow, ref=first))
    assert first in caught.value.findings[0].why


def test_two_processes_at_once_share_one_mirror(make: Make) -> None:
    source = make("one")
    git(origin(source), "branch", "feature")
    code = (
        "import sys; from pathlib import Path; from jobspec.planning.clones import Source, fetched\n"
        "print(fetched(Source(sys.argv[1], sys.argv[2], 'lib', Path(sys.argv[3])))[0])"
    )
    refs = ["main", "feature", "main", "feature"]
    argv = [[sys.executable, "-c", code, source.url, ref, str(source.parent)] for ref in refs]
    started = [subprocess.Popen(words, stdout=subprocess.PIPE, text=True) for words in argv]
    said = {process.communicate(timeout=120)[0].strip() for process in started}
    assert said == {str(source.folder(git(origin(source), "rev-parse", "HEAD")))}
    names = sorted(path.name for path in source.parent.iterdir())
    assert names == sorted([Path(*said).name, source.mirror.name, f"{source.mirror.name}.lock"])


@pytest.fixture
def served(tmp_path: Path) -> Iterator[str]:
    """The URL of a server of git's own protocol, which has the repositories in `tmp_path`."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    words = ["--reuseaddr", "--export-all", f"--base-path={tmp_path}", "--listen=127.0.0.1", f"--port={port}"]
    server = subprocess.Popen(["git", "daemon", *words], process_group=0)
    try:
        deadline = time.monotonic() + 30
        while time.monotonic() < deadline:
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
                break
            time.sleep(0.05)
        yield f"git://127.0.0.1:{port}"
    finally:
        os.killpg(server.pid, signal.SIGTERM)
        server.wait()


def test_submodules_come_with_the_commit_that_names_them(make: Make, served: str) -> None:
    outer, inner = make("outer"), make("inner")
    git(origin(outer), "submodule", "--quiet", "add", f"{served}/inner/.git", "sub")
    wanted = git(origin(inner), "rev-parse", "HEAD")
    commit(origin(outer), "outer")
    commit(origin(inner), "later")
    folder = fetched(replace(outer, url=f"{served}/outer/.git"))[0]
    assert (who(folder), who(folder / "sub")) == ("outer", "inner")
    assert git(folder / "sub", "rev-parse", "HEAD") == wanted
    assert git(folder, "remote", "get-url", "origin") == f"{served}/outer/.git"


def test_a_checkout_works_without_its_mirror(make: Make) -> None:
    source = make("one")
    folder = fetched(source)[0]
    shutil.rmtree(source.mirror)
    shutil.rmtree(origin(source))
    head = git(folder, "rev-parse", "HEAD")
    assert fetched(replace(source, ref=head)) == (folder, []) and not source.mirror.exists()
    assert git(folder, "status", "--porcelain") == "" and git(folder, "log", "--format=%s") == "one"


@pytest.mark.skipif(os.geteuid() != 0, reason="only root makes files of another user")
def test_each_user_has_mirrors_of_his_own(tmp_path: Path) -> None:
    assert cache_below(str(tmp_path)) == tmp_path / ".checkouts"
    (tmp_path / ".checkouts").mkdir()
    assert cache_below(str(tmp_path)) == tmp_path / ".checkouts"
    os.chown(tmp_path / ".checkouts", 65534, 65534)
    assert cache_below(str(tmp_path)) == tmp_path / ".checkouts-0"


def test_pointers_of_git_lfs_are_told(make: Make, tmp_path: Path) -> None:
    source = make("one")
    pointer = "version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 9\n"
    (origin(source) / "weights.bin").write_text(pointer)
    (origin(source) / "real.bin").write_text("content")
    (origin(source) / ".gitattributes").write_text("*.bin filter=lfs diff=lfs merge=lfs -text\n")
    commit(origin(source), "one")
    _, findings = read_repos(spec_of(source), tmp_path, str(tmp_path / "runs"), fetch=True)
    (finding,) = findings
    assert (finding.rule, finding.is_error) == ("repo.lfs", False)
    assert "1 file(s)" in finding.what and "weights.bin" in finding.what


def spec_of(source: Source) -> JobSpec:
    text = "version: 1\nname: x\nframework: command\ntrain: {command: [x]}\n"
    text += f"repos: [{{name: lib, url: '{source.url}', ref: {source.ref}}}]\n"
    return parse_spec(text, "spec.yaml", env={}).spec


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
    _, findings = read_repos(spec_of(source), tmp_path, str(tmp_path / "runs"), fetch=True)
    (finding,) = (item for item in findings if item.is_error)
    assert finding.rule == "repo.other-clone" and told in finding.what
