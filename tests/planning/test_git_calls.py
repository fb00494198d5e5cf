"""Every call of git: which ones there are, and that none runs a program which a stranger's checkout names."""

from __future__ import annotations

import ast
import itertools
import json
import os
import shutil
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

import jobspec.launchers
import jobspec.runtime
from jobspec.finding import JobspecError
from jobspec.planning import clones
from jobspec.planning.clones import Source, asked, fetched
from jobspec.planning.git_bundle import Sealed, file_sha256, restore, write_bundle
from jobspec.runtime.base.procs import wait_gone
from jobspec.runtime.checkouts.code_state import code_state
from jobspec.runtime.checkouts.git import SETTINGS, git_state, last_changes, lfs_pointers
from tests.kits.checkout_kit import git

ROOMS = {Path(str(module.__file__)).parent for module in (jobspec, jobspec.launchers, jobspec.runtime)}
SOURCES = {path for room in ROOMS for path in room.rglob("*.py")}
DIFFS = {"--no-ext-diff", "--no-textconv", "--submodule=short", "--ignore-submodules=dirty"}


def repository(folder: Path) -> Path:
    folder.mkdir()
    git(folder, "init", "-q", "-b", "main")
    (folder / ".gitattributes").write_text("*.py filter=f diff=d\n")
    (folder / "a.py").write_text("1\n")
    git(folder, "add", ".")
    git(folder, "commit", "-qm", "1")
    return folder


def edited(folder: Path) -> Path:
    (folder / "a.py").write_text("2\n")
    (folder / "new.py").write_text("3\n")
    return folder


@pytest.fixture
def traced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[], list[dict[str, object]]]:
    """Calls of git from now on: arguments and variables, as a program of this name on PATH gets them."""
    shim, calls = tmp_path / "bin" / "git", tmp_path / "calls"
    shim.parent.mkdir()
    shim.write_text(
        f"#!{sys.executable}\nimport json, os, sys\n"
        f"with open({str(calls)!r}, 'a') as file:\n"
        "    file.write(json.dumps({'argv': sys.argv[1:], 'env': dict(os.environ)}) + chr(10))\n"
        f"os.execv({shutil.which('git')!r}, ['git', *sys.argv[1:]])\n"
    )
    shim.chmod(0o755)
    monkeypatch.setenv("PATH", f"{shim.parent}:{os.environ['PATH']}")
    monkeypatch.setenv("GIT_EXTERNAL_DIFF", "/bin/false")
    return lambda: [json.loads(line) for line in calls.read_text().splitlines()]


def test_only_one_function_starts_git() -> None:
    """A list that begins with the word `git` is a call of it."""
    found = []
    for path in SOURCES:
        for function in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if not isinstance(function, ast.FunctionDef):
                continue
            lists = [node for node in ast.walk(function) if isinstance(node, (ast.List, ast.Tuple))]
            firsts = [node.elts[0] for node in lists if node.elts]
            if any(isinstance(first, ast.Constant) and first.value == "git" for first in firsts):
                found.append(f"{path.parent.name}/{path.name}:{function.name}")
    assert found == ["checkouts/git.py:run_git"]


def test_all_calls_are_hardened(traced: Callable[[], list[dict[str, object]]], tmp_path: Path) -> None:
    repo = repository(tmp_path / "repo")
    git(repo, "submodule", "add", "-q", str(repository(tmp_path / "inner")), "sub")
    git(repo, "commit", "-qm", "sub")
    before = len(traced())
    source = Source(f"file://{repo}", "main", "lib", tmp_path / "runs")
    asked(source)
    with pytest.raises(JobspecError):  # a submodule on this machine is refused
        fetched(source)
    lfs_pointers(str(repo))
    git_state(edited(repo))
    code_state(str(repo))
    last_changes(repo, ".")
    bundle = write_bundle(repo, tmp_path / "code.bundle")
    (tmp_path / "code.diff").write_bytes(git_state(repo).diff)
    patch = Sealed(tmp_path / "code.diff", file_sha256(tmp_path / "code.diff"))
    restore("", tmp_path / "made", git(repo, "rev-parse", "HEAD"), bundle, patch)
    restore(str(repo), tmp_path / "again", git(repo, "rev-parse", "HEAD"))
    expected = [f"-c {setting}" for setting in SETTINGS]
    commands = set()
    for call in traced()[before:]:
        argv, env = call["argv"], call["env"]
        assert isinstance(argv, list) and isinstance(env, dict)
        if argv[0] != "--no-pager":
            continue  # `git submodule` is a script, and calls git with what it inherits
        assert " ".join(argv[3:]).startswith(" ".join(expected))
        assert "GIT_EXTERNAL_DIFF" not in env and env["GIT_TERMINAL_PROMPT"] == "0"
        command = next(word for before, word in itertools.pairwise(argv) if _is_command(before, word))
        commands.add((command, env["GIT_ALLOW_PROTOCOL"]))
        if command == "diff":
            assert set(argv) >= DIFFS
    assert commands == {
        *((name, "https:ssh:git:file") for name in ("clone", "remote", "checkout")),
        ("ls-remote", "https:ssh:git:file"),
        ("submodule", "https:ssh:git"),
        *((name, "https:ssh:git:file") for name in ("init", "fetch", "apply")),
        *(
            (name, "")
            for name in (
                "config",
                "rev-parse",
                "status",
                "ls-files",
                "symbolic-ref",
                "add",
                "diff",
                "check-attr",
                "log",
                "rev-list",
                "bundle",
            )
        ),
    }


def _is_command(before: str, word: str) -> bool:
    """Whether `word` is neither an option of git nor the value of one."""
    return before not in ("-C", "-c") and word not in ("-C", "-c")


def plant(folder: Path, mark: Path, inside: Path) -> None:
    """Every setting that names a program which reading a checkout could run; each one makes `mark`."""
    program = inside / "hooks" / "program"
    program.parent.mkdir(parents=True)
    program.write_text(f"#!/bin/sh\ntouch {mark}\ncat\n")
    program.chmod(0o755)
    for hook in ("post-index-change", "post-checkout", "reference-transaction"):
        shutil.copy(program, program.parent / hook)
    for key in ("filter.f.clean", "filter.f.smudge", "core.fsmonitor", "core.pager", "core.sshCommand"):
        git(folder, "config", key, str(program))
    for key in ("diff.external", "diff.d.command", "diff.d.textconv", "filter.g.process", "core.editor"):
        git(folder, "config", key, str(program))
    git(folder, "config", "core.hooksPath", str(program.parent))
    git(folder, "config", "filter.g.required", "true")
    git(folder, "config", "pager.status", str(program))


def test_the_planted_programs_would_run(tmp_path: Path) -> None:
    repo, mark = edited(repository(tmp_path / "repo")), tmp_path / "ran"
    plant(repo, mark, tmp_path / "planted")
    git(repo, "status")
    assert mark.exists()


def test_a_checkout_with_programs_in_its_configuration_runs_none(tmp_path: Path) -> None:
    repo, mark = edited(repository(tmp_path / "repo")), tmp_path / "ran"
    plant(repo, mark, tmp_path / "planted")
    (repo / "b.txt").write_text("4\n")
    (repo / ".gitattributes").write_text("*.py filter=f diff=d\n*.txt filter=g\n")
    state, code = git_state(repo), code_state(str(repo))
    assert not mark.exists() and code.changes
    assert state.dirty and state.left_out == ()
    assert b"+2" in state.diff and b"+3" in state.diff and b"+4" in state.diff


def test_a_history_of_signed_commits_runs_no_program(tmp_path: Path) -> None:
    repo, mark = repository(tmp_path / "repo"), tmp_path / "ran"
    plant(repo, mark, tmp_path / "planted")
    git(repo, "config", "log.showSignature", "true")
    git(repo, "config", "gpg.program", str(tmp_path / "planted" / "hooks" / "program"))
    commit = git(repo, "cat-file", "commit", "HEAD")
    signature = "\ngpgsig -----BEGIN PGP SIGNATURE-----\n \n x\n -----END PGP SIGNATURE-----\n\n"
    (tmp_path / "signed").write_text(commit.replace("\n\n", signature, 1) + "\n")
    signed = git(repo, "hash-object", "-t", "commit", "-w", str(tmp_path / "signed"))
    (repo / ".git" / "refs" / "heads" / "main").write_text(signed + "\n")
    mark.unlink(missing_ok=True)
    assert set(last_changes(repo, ".")) == {".gitattributes", "a.py"}
    assert not mark.exists()
    git(repo, "log")
    assert mark.exists()


def test_a_submodule_with_programs_in_its_configuration_runs_none(tmp_path: Path) -> None:
    repo, mark = repository(tmp_path / "repo"), tmp_path / "ran"
    git(repo, "submodule", "add", "-q", str(repository(tmp_path / "inner")), "sub")
    git(repo, "commit", "-qm", "sub")
    plant(edited(repo / "sub"), mark, tmp_path / "planted")
    git(repo, "config", "diff.submodule", "diff")
    state, code = git_state(repo), code_state(str(repo))
    assert not mark.exists() and code.changes
    assert (state.dirty, state.left_out) == (True, ("sub",))


def test_a_partial_clone_asks_its_remote_nothing(tmp_path: Path) -> None:
    repo, mark = edited(repository(tmp_path / "repo")), tmp_path / "ran"
    git(repo, "config", "remote.origin.url", f"ext::sh -c touch% {mark}")
    for key, value in (("remote.origin.promisor", "true"), ("protocol.ext.allow", "always")):
        git(repo, "config", key, value)
    git(repo, "config", "extensions.partialClone", "origin")
    blob = git(repo, "rev-parse", "HEAD:a.py")
    (repo / ".git" / "objects" / blob[:2] / blob[2:]).unlink()
    assert git_state(repo).dirty and code_state(str(repo)).commit
    assert not mark.exists()


def test_a_filter_that_cannot_be_turned_off_is_refused(tmp_path: Path) -> None:
    repo = repository(tmp_path / "repo")
    with (repo / ".git" / "config").open("a") as file:
        file.write('[filter "a=b"]\n\tclean = touch x\n')
    with pytest.raises(JobspecError) as caught:
        git_state(repo)
    assert caught.value.findings[0].rule == "repo.filter"


@pytest.mark.parametrize("url", ["fd::17/x", "ext::sh -c touch% MARK", "http://127.0.0.1:1/x"])
def test_other_protocols_are_refused(url: str, tmp_path: Path) -> None:
    with pytest.raises(JobspecError) as caught:
        clones._remote_commit(url.replace("MARK", str(tmp_path / "mark")), "main")
    assert "not allowed" in caught.value.findings[0].why
    assert list(tmp_path.iterdir()) == []


def test_a_remote_that_never_answers_ends_at_a_deadline_that_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The transport is a process below git, and keeps git's output open."""
    pid = tmp_path / "pid"
    monkeypatch.setenv("GIT_SSH_COMMAND", f"echo $$ > {pid}; sleep 600; :")
    monkeypatch.setattr(clones, "GIT_TIMEOUT_S", 1.0)
    with pytest.raises(JobspecError) as caught:
        clones._remote_commit("ssh://git@host.example/x", "main")
    assert (caught.value.findings[0].rule, "1 s" in caught.value.findings[0].what) == ("repo.timeout", True)
    assert wait_gone([int(pid.read_text())], 30) == set()
