"""Locks of others: what they do is shown and confirmed first, and what they do not pin is told."""

from __future__ import annotations

import os
import pty
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.kits.checkout_kit import git
from tests.kits.project_kit import Project

REPO = """\
repos: [{{name: lib, url: "file://{root}/lib", ref: main}}]
container: {{env: {{MODE: "a\\eb"}}}}
secrets: [OTHER_SECRET]
"""


@pytest.fixture
def commit(project: Project, monkeypatch: pytest.MonkeyPatch) -> str:
    """The commit of `theirs.yaml`, a lock as somebody sent it: nothing of it was ever run here."""
    lib = project.root / "lib"
    lib.mkdir()
    git(lib, "init", "-q", "-b", "main")
    git(lib, "commit", "-q", "--allow-empty", "-m", "x")
    monkeypatch.setenv("OTHER_SECRET", "s3cret-value")
    project.write("spec.yaml", project.spec.read_text() + REPO.format(root=project.root))
    assert project.cli("render", "spec.yaml", "--out", "out").code == 0
    shutil.copy("out/spec.lock.yaml", "theirs.yaml")
    shutil.rmtree("out")
    shutil.rmtree("runs/.checkouts")
    return git(lib, "rev-parse", "HEAD")


def test_nothing_is_fetched_or_started_before_it_is_confirmed(project: Project, commit: str) -> None:
    done = project.process("reproduce", "theirs.yaml")
    assert (done.code, "error[reproduce.not-confirmed]" in done.err) == (2, True), done.text
    for shown in (
        f"fetches   file://{project.root}/lib at {commit}\n",
        "gets      the secret OTHER_SECRET\n",
        "sets      MODE=a\\x1bb\n",
        'echo "hello from the driver"\n',
    ):
        assert shown in done.err
    assert "\x1b" not in done.text and "s3cret-value" not in done.text
    assert not list(Path("runs").glob("*/*")) and not Path("runs/.checkouts").exists()


def test_yes_confirms_and_fetches_the_pinned_commit(project: Project, commit: str) -> None:
    git(project.root / "lib", "commit", "-q", "--allow-empty", "-m", "later")
    done = project.cli("reproduce", "theirs.yaml", "--yes", "--watch")
    assert done.code == 0, done.text
    assert "the secret OTHER_SECRET" in done.err
    assert project.last().lock.read_text().count(commit) == 2


@pytest.mark.parametrize(("answer", "code"), [("y\n", 0), ("\n", 2), ("no\n", 2), ("\x04", 2)])
def test_terminal_is_asked(answer: str, code: int, project: Project, commit: str) -> None:
    ours, theirs = pty.openpty()
    os.write(ours, answer.encode())
    argv = [sys.executable, "-m", "jobspec.cli", "reproduce", "theirs.yaml", "--watch"]
    done = subprocess.run(
        argv, stdin=theirs, stdout=subprocess.DEVNULL, stderr=theirs, timeout=120, check=False
    )
    os.close(ours)
    os.close(theirs)
    assert done.returncode == code
    assert len(list(Path("runs").glob("hello/*"))) == (1 if code == 0 else 0)


def test_lock_of_a_run_of_mine_is_not_asked_about(project: Project) -> None:
    assert project.cli("run", "hello.yaml").code == 0
    Path("link").symlink_to("runs")
    for named in ("last", f"link/hello/{project.last().run_id}"):
        done = project.process("reproduce", named)
        assert (done.code, "was not written" in done.text) == (0, False)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root makes files of another user")
def test_lock_of_another_user_in_a_shared_folder_of_runs_is_asked_about(project: Project) -> None:
    assert project.cli("run", "hello.yaml").code == 0
    os.chown(project.last().root, 65534, 65534)
    assert "reproduce.not-confirmed" in project.process("reproduce", "last").err


def test_copy_of_a_run_elsewhere_is_asked_about(project: Project) -> None:
    assert project.cli("run", "hello.yaml").code == 0
    run = project.last().root
    shutil.copytree(run, project.root / "downloads" / "hello" / run.name)
    done = project.process("reproduce", f"downloads/hello/{run.name}")
    assert "reproduce.not-confirmed" in done.err


def test_lock_that_changes_while_it_is_read_is_refused(project: Project, commit: str) -> None:
    from jobspec.cli import consent
    from jobspec.finding import JobspecError
    from jobspec.pipeline import Request, resolve

    lock = Path("theirs.yaml")
    resolved, text = resolve(Request(lock)), lock.read_bytes()
    consent.confirm(lock, text, resolved, yes=True)
    lock.write_text(lock.read_text().replace("hello from", "other"))
    with pytest.raises(JobspecError, match="has changed since it was shown"):
        consent.confirm(lock, text, resolved, yes=True)


def test_lock_without_its_facts_is_not_as_it_was(project: Project, commit: str) -> None:
    lock = """\
version: 1
name: l
framework: command
launch: {mode: srun}
repos: [{name: lib, url: "file://ROOT/lib", ref: main}]
train: {command: ["true"]}
lock: {jobspec: "0.1.0", cluster_sha256: "0"}
"""
    project.write("stripped.yaml", lock.replace("ROOT", str(project.root)))
    done = project.cli("reproduce", "stripped.yaml", "--check")
    assert (done.code, "everything is as it was" in done.text) == (1, False)
    assert "error[reproduce.unpinned]" in done.err and "the commit of repo `lib`" in done.err
    assert project.cli("reproduce", "stripped.yaml", "--yes").code == 2


PLANTED = """\
version: 1
name: planted
framework: command
launch: {{mode: {mode}}}
container: {{python: "{root}/bin/python3"}}
repos: [{{name: lib, path: "{root}/sent", pythonpath: [lib]}}]
train: {{command: ["{python}", "{root}/sent/train.py"]}}
lock: {{jobspec: "0.1.0", cluster_sha256: "0"}}
"""


@pytest.mark.parametrize("mode", ["srun", "ray"])
@pytest.mark.parametrize("python", ["ROOT/bin/python3", sys.executable])
@pytest.mark.parametrize(
    "words", [("validate",), ("explain",), ("reproduce",), ("reproduce", "--check")], ids="_".join
)
def test_no_program_or_module_of_a_lock_is_run_by_looking_at_it(
    words: tuple[str, ...], python: str, mode: str, project: Project
) -> None:
    root, ran = project.root, project.root / "ran"
    (root / "bin").mkdir()
    (root / "sent" / "lib").mkdir(parents=True)
    (root / "sent" / "train.py").write_text("import json, mine, no_such_package\n")
    for name in ("sitecustomize", "json", "mine", "no_such_package", "ray"):
        for folder in (root / "sent", root / "sent" / "lib"):
            (folder / f"{name}.py").write_text(f"open({str(ran)!r}, 'w')\n")
    interpreter = root / "bin" / "python3"
    interpreter.write_text(f'#!/bin/sh\n: > {ran}\nexec {sys.executable} "$@"\n')
    interpreter.chmod(0o755)
    python = python.replace("ROOT", str(root))
    project.write("planted.yaml", PLANTED.format(root=root, python=python, mode=mode))
    done = project.process(words[0], "planted.yaml", *words[1:])
    assert "Traceback" not in done.text and "planted" in done.text, done.text
    assert not ran.exists()


def test_token_that_nodes_download_with_is_shown(project: Project) -> None:
    text = project.spec.read_text()
    model = "model: {id: acme/tiny, stage: hub, revision: " + "a" * 40 + "}\n"
    more = 'container: {env: {HF_ENDPOINT: "http://elsewhere.example"}}\n'
    project.write("spec.yaml", text + model + more)
    assert project.cli("render", "spec.yaml", "--out", "out").code == 0
    shutil.copy("out/spec.lock.yaml", "theirs.yaml")
    shutil.rmtree("out")
    done = project.process("reproduce", "theirs.yaml")
    assert "error[reproduce.not-confirmed]" in done.err
    assert "gets      the secret HF_TOKEN of your shell, while nodes download from the hub\n" in done.err
    assert "sets      HF_ENDPOINT=http://elsewhere.example\n" in done.err
