"""A disk of the run that is full, out of inodes or under a quota: told as what it is, and nothing is lost."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from jobspec.runtime.base.full_disk import refusal
from tests.kits.quota_kit import quota

JOBSPEC = Path(sys.executable).with_name("jobspec")
SMALL = 24 << 20
WORDS = {
    "full": "the disk is full (No space left on device)",
    "inodes": "no inodes are left there (No space left on device)",
    "quota": "the quota of space or of files is used up (Disk quota exceeded)",
}
FIXES = {"full": "df -h", "inodes": "df -i", "quota": "quota -s"}

pytestmark = [
    pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to mount a file system"),
    pytest.mark.parametrize("kind", WORDS),
]


@pytest.fixture
def disk(tmp_path: Path, kind: str) -> Iterator[Path]:
    """24 MiB, or 600 inodes, or a quota of 24 MiB on a disk that has room."""
    with quota(tmp_path, SMALL) if kind == "quota" else tmpfs(tmp_path / "mounted", kind) as folder:
        yield folder


@contextmanager
def tmpfs(mounted: Path, kind: str) -> Iterator[Path]:
    mounted.mkdir()
    options = f"size={SMALL}" if kind == "full" else "size=200m,nr_inodes=600"
    if not did("mount", "-t", "tmpfs", "-o", options, "none", str(mounted)):
        pytest.skip("needs the right to mount a tmpfs")
    try:
        yield mounted
    finally:
        did("umount", "--lazy", str(mounted))


def did(*argv: str) -> bool:
    return subprocess.run(argv, capture_output=True, check=False).returncode == 0


def jobspec(disk: Path, spec: Path, *argv: str) -> subprocess.CompletedProcess[str]:
    env = {**os.environ, "JOBSPEC_RUNS": str(disk / "runs"), "XDG_STATE_HOME": str(spec.parent / "state")}
    return subprocess.run(
        [JOBSPEC, *argv, spec],
        env=env,
        cwd=spec.parent,
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )


def write_spec(folder: Path, script: str, *collected: str) -> Path:
    spec = {
        "version": 1, "name": "small", "framework": "command", "launch": {"mode": "srun"},
        "train": {"command": ["bash", "-c", script]},
        "artifacts": {"collect": list(collected)},
    }  # fmt: skip
    path = folder / "spec.yaml"
    path.write_text(json.dumps(spec))
    return path


def test_the_cause_of_a_refused_write(disk: Path, kind: str) -> None:
    with pytest.raises(OSError) as refused:
        for number in range(10_000):
            with (disk / str(number)).open("wb") as file:
                file.write(b"" if kind == "inodes" else os.urandom(65536))
                file.flush()
                os.fsync(file.fileno())  # a quota of Btrfs is counted at a commit
    why, fix = refusal(refused.value)
    assert why == WORDS[kind]
    assert FIXES[kind] in fix


def test_a_run_whose_files_do_not_fit_says_which_and_why(disk: Path, tmp_path: Path, kind: str) -> None:
    made, count, size = tmp_path / "made", 800, 65536
    script = f"mkdir {made}; cd {made}; for i in $(seq {count}); do head -c {size} /dev/urandom > $i; done"
    spec = write_spec(tmp_path, script, f"{made}/**")
    done = jobspec(disk, spec, "run")
    (run,) = (disk / "runs/small").iterdir()
    results = json.loads((run / "attempts/1/results.json").read_text())
    assert [row["exit_code"] for row in results["commands"]] == [0]
    found = {finding["rule"]: finding for finding in results["findings"]}["collect.io"]
    assert WORDS[kind] in found["what"] + found["why"]
    assert FIXES[kind] in found["fix"]
    assert (done.returncode, "BLOCKED" in done.stdout) == (3, True), done.stdout + done.stderr
    assert not list(run.rglob(".reserve"))


def test_a_checkout_is_frozen_on_another_disk_while_it_fits(disk: Path, tmp_path: Path, kind: str) -> None:
    repo = tmp_path / "repo"
    repo.mkdir()

    def git(*words: str) -> None:
        who = ["-c", "user.name=ann", "-c", "user.email=ann@example.org"]
        assert did("git", "-C", str(repo), *who, *words)

    def render() -> subprocess.CompletedProcess[str]:
        git("add", ".")
        git("commit", "--quiet", "--message", "more")
        return jobspec(disk, spec, "render")

    spec = write_spec(tmp_path, "true")
    whole = json.loads(spec.read_text())
    whole["repos"] = [{"name": "repo", "path": str(repo), "freeze": True, "pythonpath": ["."]}]
    spec.write_text(json.dumps(whole))
    git("init", "--quiet")
    (repo / "a.py").write_text("a = 1\n")
    done = render()
    assert done.returncode == 0, done.stdout + done.stderr
    for number in range(700):
        (repo / f"{number}.py").write_bytes(os.urandom(1 << (4 if kind == "inodes" else 16)))
    done = render()
    assert done.returncode == 2
    assert WORDS[kind] in done.stderr and FIXES[kind] in done.stderr
