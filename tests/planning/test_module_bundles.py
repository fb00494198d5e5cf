"""Commits of submodules that no server has: saved with the run, and there again in a checkout made of it."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
import yaml

from jobspec import pipeline
from jobspec.pipeline import Request
from jobspec.planning.restored import restorable, restore
from tests.kits.checkout_kit import git, write_checkout
from tests.planning.test_clones import served

__all__ = ["served"]  # git's own server, of the clones' tests
SPEC = {
    "version": 1,
    "name": "x",
    "framework": "command",
    "launch": {"mode": "srun"},
    "train": {"command": ["true"]},
}


@pytest.fixture
def work(tmp_path: Path, served: str) -> Path:
    """A clone with a submodule in a submodule; both have a commit that was never pushed."""
    for name, files in (
        ("inner", {"in.py": "1\n"}),
        ("core", {"core.py": "1\n"}),
        ("outer", {"out.py": "1\n"}),
    ):
        write_checkout(tmp_path / name, files)
    git(tmp_path / "core", "submodule", "--quiet", "add", f"{served}/inner/.git", "deep")
    git(tmp_path / "core", "commit", "-qm", "deep")
    git(tmp_path / "outer", "submodule", "--quiet", "add", f"{served}/core/.git", "third/core")
    git(tmp_path / "outer", "commit", "-qm", "core")
    work = tmp_path / "work"
    git(tmp_path, "clone", "-q", "--recurse-submodules", f"{served}/outer/.git", str(work))
    for folder, file in (("third/core/deep", "in.py"), ("third/core", "core.py"), ("", "out.py")):
        (work / folder / file).write_text("2\n")
        git(work / folder, "commit", "-qam", "never pushed")
    return work


def rendered(root: Path, work: Path) -> Path:
    (root / "site.yaml").write_text(
        yaml.safe_dump(
            {
                "version": 1,
                "name": "here",
                "scheduler": "local",
                "paths": {"runs": str(root / "runs"), "node_local": "/tmp/n"},
            }
        )
    )
    (root / "spec.yaml").write_text(yaml.safe_dump({**SPEC, "repos": [{"name": "code", "path": str(work)}]}))
    request = Request(root / "spec.yaml", cluster_file=root / "site.yaml")
    return pipeline.render_run(request, root / "run").run.root


def test_commits_of_submodules_are_saved_and_come_back(tmp_path: Path, work: Path) -> None:
    run = rendered(tmp_path, work)
    facts = yaml.safe_load((run / "spec.lock.yaml").read_text())["lock"]["repos"]["code"]
    assert sorted(facts["submodules"]) == ["third/core", "third/core/deep"]
    assert all((run / row["bundle"]).is_file() for row in facts["submodules"].values())
    commits = {name: git(work / name, "rev-parse", "HEAD") for name in ("", "third/core", "third/core/deep")}
    shutil.rmtree(work)
    loaded, _ = pipeline.load_on_site(Request(run / "spec.lock.yaml", cluster_file=tmp_path / "site.yaml"))
    (item,) = restorable(loaded, str(tmp_path / "runs"))
    assert item.lacks == "" and "bundle code+third+core.bundle" in item.parts
    restore(item)
    assert {name: git(item.folder / name, "rev-parse", "HEAD") for name in commits} == commits
    assert (item.folder / "third/core/deep/in.py").read_text() == "2\n"


def test_damaged_bundle_of_a_submodule_is_told_before_anything_is_made(tmp_path: Path, work: Path) -> None:
    run = rendered(tmp_path, work)
    (run / "patches/code+third+core.bundle").write_bytes(b"other")
    shutil.rmtree(work)
    loaded, _ = pipeline.load_on_site(Request(run / "spec.lock.yaml", cluster_file=tmp_path / "site.yaml"))
    (item,) = restorable(loaded, str(tmp_path / "runs"))
    assert item.lacks == f"`{run}/patches/code+third+core.bundle` is another file"


def test_pushed_submodules_need_no_bundle(tmp_path: Path, work: Path) -> None:
    git(work, "submodule", "--quiet", "update", "--init", "--recursive")
    for folder in ("third/core/deep", "third/core"):
        git(work / folder, "fetch", "-q", "origin")
        git(work / folder, "checkout", "-q", "origin/HEAD")
    run = rendered(tmp_path, work)
    facts = yaml.safe_load((run / "spec.lock.yaml").read_text())["lock"]["repos"]["code"]
    assert "submodules" not in facts and facts["bundle"] == "patches/code.bundle"
