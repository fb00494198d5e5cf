"""Phase `code` in a real agent: what lies in the checkouts as an attempt starts, against the plan."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from jobspec.plan import RepoPlan
from jobspec.runtime.checkouts.code_state import code_state
from jobspec.runtime.checkouts.git import git_state
from tests.kits.agent_lab import Run, running, shell
from tests.kits.checkout_kit import write_checkout
from tests.kits.pythons import PYTHON39, needs_python39

TRAIN = shell("touch $JOBSPEC_RUN_DIR/trained")


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    return write_checkout(tmp_path / "bridge", {"mod.py": "x = 1\n", "other.py": "y = 1\n"})


def planned(checkout: Path, on_change: str = "block") -> RepoPlan:
    state, code = git_state(checkout), code_state(str(checkout))
    changes = None if code.unknown else code.changes
    return RepoPlan(
        "bridge",
        str(checkout),
        commit=state.commit,
        changes=changes,
        branch=state.branch,
        on_change=on_change,
    )


def ended(run: Run, **options: Any) -> tuple[int, dict[str, Any]]:
    process = run.agent(**options)
    code, output = run.finish(process)
    assert (run.attempt / "results.json").exists(), output
    return code, run.results()


def test_edit_after_submission_blocks_the_run_and_is_named(tmp_path: Path, checkout: Path) -> None:
    repo = planned(checkout)
    (checkout / "mod.py").write_text("x = 2\n")
    with running(tmp_path, TRAIN, repos=(repo,)) as run:
        code, results = ended(run)
        assert not (run.root / "trained").exists()
    assert (code, results["outcome"], results["first_phase_failed"]) == (3, "blocked", "code")
    finding = results["findings"][0]
    assert (finding["rule"], finding["path"]) == ("code.changed", "repos[0]")
    assert finding["what"] == "`bridge` changed after submission: 1 file (mod.py)"
    state = results["code"]["bridge"]
    assert (state["commit"], state["uncommitted"], state["changed"]) == (repo.commit, ["mod.py"], ["mod.py"])


def test_uncommitted_changes_that_stay_as_they_were_pass(tmp_path: Path, checkout: Path) -> None:
    (checkout / "mod.py").write_text("x = 2\n")
    repo = planned(checkout)
    with running(tmp_path, TRAIN, repos=(repo,)) as run:
        code, results = ended(run)
        assert (run.root / "trained").exists()
        phases = [row["phase"] for row in results["phases"]]
    assert (code, results["findings"]) == (0, [])
    assert phases.index("preflight") < phases.index("code") < phases.index("driver")
    state = results["code"]["bridge"]
    assert (state["uncommitted"], state["changed"], state["unknown"]) == (["mod.py"], [], "")
    assert state["uncommitted_sha256"] == code_state(str(checkout)).changes_sha256


def test_second_attempt_reads_again(tmp_path: Path, checkout: Path) -> None:
    train = shell(f"echo 'x = 3' > {checkout}/mod.py; mkdir -p {checkout}/__pycache__; "
                  f"touch {checkout}/__pycache__/mod.cpython-311.pyc")  # fmt: skip
    with running(tmp_path, train, repos=(planned(checkout),)) as run:
        first, _ = ended(run)
        second, output = run.finish(run.agent(env={"JOBSPEC_ATTEMPT": "2"}))
        results = json.loads((run.root / "attempts/2/results.json").read_text())
    assert (first, second) == (0, 3), output
    assert results["code"]["bridge"]["changed"] == ["mod.py"]


def test_record_goes_on_and_keeps_what_ran(tmp_path: Path, checkout: Path) -> None:
    repo = planned(checkout, "record")
    (checkout / "mod.py").write_text("x = 2\n")
    (checkout / "other.py").write_text("y = 2\n")
    git = ["git", "-C", str(checkout), "-c", "user.name=t", "-c", "user.email=t@example.com"]
    subprocess.run([*git, "commit", "-qm", "second", "other.py"], check=True)
    with running(tmp_path, TRAIN, repos=(repo,)) as run:
        code, results = ended(run)
        state = results["code"]["bridge"]
        patch = (run.attempt / state["patch"]).read_text()
    assert (code, results["outcome"]) == (0, "ok")
    assert [(row["rule"], row["severity"]) for row in results["findings"]] == [("code.changed", "warning")]
    assert results["findings"][0]["what"] == "`bridge` changed after submission: 2 files (mod.py, other.py)"
    assert state["commit"] == git_state(checkout).commit != repo.commit
    assert "+x = 2" in patch and "other.py" not in patch


@pytest.mark.parametrize("how", ["no checkout", "no git", "not mounted"])
def test_what_cannot_be_told_never_blocks(tmp_path: Path, checkout: Path, how: str) -> None:
    env = {}
    if how == "no checkout":
        shutil.rmtree(checkout / ".git")
    repo = planned(checkout)
    if how == "no git":
        env["PATH"] = str(tools_without_git(tmp_path))
    if how == "not mounted":
        (checkout / ".git").rename(tmp_path / "git")
        (checkout / ".git").write_text("gitdir: /not/mounted\n")
    with running(tmp_path, TRAIN, repos=(repo,)) as run:
        code, results = ended(run, env=env)
    assert (code, results["outcome"]) == (0, "ok")
    assert [(row["rule"], row["severity"]) for row in results["findings"]] == [("code.unknown", "warning")]
    said = {"no git": "`git` is not installed"}.get(how, "not a git repository")
    assert said in results["code"]["bridge"]["unknown"] and said in results["findings"][0]["why"]


def tools_without_git(folder: Path) -> Path:
    tools = folder / "tools"
    tools.mkdir()
    for name in ("bash", "touch", "env", "sh"):
        (tools / name).symlink_to(str(shutil.which(name)))
    return tools


def test_run_of_an_older_plan_has_no_such_phase(tmp_path: Path, checkout: Path) -> None:
    with running(tmp_path, TRAIN, repos=(RepoPlan("bridge", str(checkout), commit="0" * 40),)) as run:
        code, results = ended(run)
    assert (code, results["code"]) == (0, {})
    assert "code" not in {row["phase"] for row in results["phases"]}


@needs_python39
def test_python_3_9_compares_too(tmp_path: Path, checkout: Path) -> None:
    repo = planned(checkout)
    (checkout / "mod.py").write_text("x = 2\n")
    with running(tmp_path, TRAIN, repos=(repo,)) as run:
        code, results = ended(run, python=str(PYTHON39))
    assert (code, results["code"]["bridge"]["changed"]) == (3, ["mod.py"])
