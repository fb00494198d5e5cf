"""The fault table of staging, this node: full disks, rights, limits, other users."""

from __future__ import annotations

import contextlib
import errno
import os
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from jobspec.runtime.staging import items
from jobspec.runtime.staging.hfcache import FileEntry
from jobspec.runtime.staging.places import left_bytes
from tests.kits.other_user import as_nobody, in_child
from tests.kits.quota_kit import limit, quota
from tests.runtime.staging.stage_kit import (
    COMMIT,
    NAME,
    Source,
    blob_of,
    content,
    hf_repo,
    item,
    rules,
    run,
    sharded,
    snapshot,
)

needs_root = pytest.mark.skipif(
    os.geteuid() != 0, reason="needs root, to mount a file system or to become another user"
)


@pytest.fixture
def tmpfs(tmp_path: Path) -> Iterator[Callable[[str], Path]]:
    """Mounts a real small file system: `tmpfs("size=8m")`."""
    folder = tmp_path / "tmpfs"
    folder.mkdir()

    def mount(options: str) -> Path:
        done = subprocess.run(
            ["mount", "-t", "tmpfs", "-o", options, "none", folder], capture_output=True, check=False
        )
        if done.returncode:
            pytest.skip(f"needs the right to mount a tmpfs: {done.stderr.decode().strip()}")
        return folder

    yield mount
    # Lazy: the lock of a model stays open until its process ends, and a mount must not outlive the test.
    subprocess.run(["umount", "--lazy", folder], capture_output=True, check=False)


@needs_root
def test_model_larger_than_the_disk_is_refused_first(tmp_path: Path, tmpfs: Callable[[str], Path]) -> None:
    source = Source()
    result = run(hf_repo(tmp_path, sharded(4, 4 << 20)), tmpfs("size=8m") / "node", open_source=source)
    (finding,) = result.findings
    assert finding.rule == "stage.space" and source.opened == []
    assert "needs 16.0" in finding.what and "are free" in finding.what


class FillingDisk(Source):
    """Another program fills the disk when byte `at` of the source has been read."""

    def __init__(self, folder: Path, at: int) -> None:
        super().__init__()
        self.folder, self.at = folder, at

    def after(self, entry: FileEntry, view: memoryview) -> None:
        if self.bytes >= self.at and not (self.folder / "hog").exists():
            with (self.folder / "hog").open("wb") as hog:
                for _ in range(1 << 16):
                    try:
                        hog.write(b"\0" * 65536)
                        hog.flush()
                    except OSError:
                        break


@needs_root
@pytest.mark.parametrize("at", [1, 3 << 20, 7 << 20])
def test_disk_full_at_byte(tmp_path: Path, tmpfs: Callable[[str], Path], at: int) -> None:
    files = sharded(2, 6 << 20)
    repo, disk = hf_repo(tmp_path, files), tmpfs("size=24m")
    result = run(repo, disk / "node", open_source=FillingDisk(disk, at), lanes=1)
    (finding,) = result.findings
    assert finding.rule == "stage.disk-full" and finding.file.startswith(str(repo)) and result.ready == {}
    assert not snapshot(disk / "node").exists()
    (disk / "hog").unlink()
    assert content(Path(run(repo, disk / "node").ready["model"])) == files


class TakingInodes(Source):
    """Another program uses up the inodes of `folder` as soon as a byte has been read."""

    def __init__(self, folder: Path) -> None:
        super().__init__()
        self.folder = folder

    def after(self, entry: FileEntry, view: memoryview) -> None:
        with contextlib.suppress(OSError):
            for number in range(1000):
                (self.folder / f"hog-{number}").touch()


@needs_root
def test_disk_without_inodes_is_told_as_that(tmp_path: Path, tmpfs: Callable[[str], Path]) -> None:
    repo, disk = hf_repo(tmp_path, sharded(3)), tmpfs("size=64m,nr_inodes=100")
    result = run(repo, disk / "node", open_source=TakingInodes(disk), lanes=1)
    (finding,) = result.findings
    assert finding.rule == "stage.disk-full" and "no inodes are left there" in finding.what
    assert "df -i" in finding.fix and "node_local" in finding.fix


@needs_root
def test_quota_of_the_node_disk(tmp_path: Path) -> None:
    """The disk has room, and nothing tells of a quota but the write that it refuses."""
    files = sharded(4, 8 << 20)
    repo = hf_repo(tmp_path, files)
    with quota(tmp_path, 20 << 20) as disk:
        result = run(repo, disk / "node", lanes=1)
        (finding,) = result.findings
        assert finding.rule == "stage.disk-full" and result.ready == {}
        assert "the quota of space or of files is used up (Disk quota exceeded)" in finding.what
        assert "quota -s" in finding.fix and "node_local" in finding.fix
        assert not snapshot(disk / "node").exists()
        kept = [blob.stat().st_size for blob in (disk / "node").rglob("blobs/*")]
        subprocess.run(limit(disk, 64 << 20), check=True)
        again = run(repo, disk / "node")
        assert content(Path(again.ready["model"])) == files
        assert kept and again.bytes == sum(map(len, files.values())) - sum(kept)


@pytest.mark.parametrize("layout", ["hf", "plain"])
def test_what_is_there_of_an_item(tmp_path: Path, layout: str) -> None:
    files = sharded(2, 1 << 20)
    source = hf_repo(tmp_path, files)
    if layout == "plain":
        source = source / "snapshots" / COMMIT
    total, one = sum(map(len, files.values())), item(source, layout=layout)
    node = tmp_path / "node"
    assert left_bytes(one, str(node)) == total
    few = item(source, layout=layout, allow=("*.json",))
    small = left_bytes(few, str(node))
    assert 0 < small < 1 << 20
    assert run(source, node, layout=layout).ok
    assert left_bytes(one, str(node)) == 0
    assert left_bytes(few, str(node)) == (small if layout == "plain" else 0)  # a folder of its own


def test_a_part_is_there_too(tmp_path: Path) -> None:
    source, node = hf_repo(tmp_path, sharded(2, 1 << 20)), tmp_path / "node"
    assert not run(source, node, open_source=Cutting(), lanes=1).ok
    total = sum(path.stat().st_size for path in (source / "blobs").iterdir())
    assert total - (1 << 20) < left_bytes(item(source), str(node)) <= total - (1 << 19)


def test_other_revisions_are_neither_left_nor_there(tmp_path: Path) -> None:
    """Preflight asked for room for blobs that nobody copies, and took an older revision's for the wanted."""
    files, node = sharded(2, 1 << 20), tmp_path / "node"
    source, total = hf_repo(tmp_path, files), sum(map(len, files.values()))
    assert run(source, node).ok
    newer = {name: bytes(reversed(data)) for name, data in files.items()}
    hf_repo(tmp_path, newer, "f" * 40, ("dev",))
    assert left_bytes(item(source), str(node)) == 0
    assert left_bytes(item(source, revision="dev"), str(node)) == total


class Cutting(Source):
    """The source is out of reach once half of a file is read."""

    def after(self, entry: FileEntry, view: memoryview) -> None:
        if self.bytes > 1 << 19:
            raise OSError(errno.EACCES, "Permission denied")


@needs_root
def test_read_only_target(tmp_path: Path, tmpfs: Callable[[str], Path]) -> None:
    result = run(hf_repo(tmp_path, sharded(1)), tmpfs("size=8m,ro") / "node")
    assert rules(result) == ["stage.read-only"]


def told(result: items.StageResult) -> dict[str, Any]:
    return {"rules": rules(result), "ready": dict(result.ready), "files": [f.file for f in result.findings]}


@pytest.fixture
def public() -> Iterator[Path]:
    """A folder that another user can get to. Pytest's are private; each session that begins makes them so."""
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)
        yield Path(folder)


@needs_root
def test_unreadable_file_is_named(public: Path) -> None:
    repo = hf_repo(public, sharded())
    (public / "node").mkdir(mode=0o1777)
    (public / "node").chmod(0o1777)
    blob = blob_of(repo, NAME)
    blob.chmod(0o600)
    got = in_child(lambda: told(run(repo, public / "node")), as_nobody)
    assert got == {"rules": ["stage.permission"], "ready": {}, "files": [str(blob)]}


@needs_root
def test_unreadable_folder_is_named(public: Path) -> None:
    repo = hf_repo(public, sharded())
    repo.chmod(0o700)
    got = in_child(lambda: told(run(repo, public / "node")), as_nobody)
    assert got["rules"] == ["stage.permission"] and got["files"][0].startswith(str(repo))


@needs_root
def test_target_that_only_root_may_write(public: Path) -> None:
    repo = hf_repo(public, sharded(1))
    (public / "node").mkdir(mode=0o755)
    got = in_child(lambda: told(run(repo, public / "node")), as_nobody)
    assert got["rules"] == ["stage.permission"] and got["files"][0].startswith(str(public / "node"))


@needs_root
def test_two_users_have_a_copy_each(public: Path) -> None:
    files = sharded(1)
    repo = hf_repo(public, files)
    mine = run(repo, public / "node")
    got = in_child(lambda: told(run(repo, public / "node")), as_nobody)
    assert got["rules"] == []
    theirs = Path(got["ready"]["model"])
    assert theirs != Path(mine.ready["model"]) and content(theirs) == files
    assert (theirs / "config.json").stat().st_uid == 65534


@needs_root
def test_folder_prepared_by_another_user_is_not_trusted(public: Path) -> None:
    trap = public / "node" / "hf-0"
    trap.mkdir(parents=True)
    os.chown(trap, 65534, 65534)
    result = run(hf_repo(public, sharded(1)), public / "node")
    assert Path(result.hf_home).name == "hf-0-1" and list(trap.iterdir()) == []


def test_file_size_limit(tmp_path: Path) -> None:
    import resource

    repo = hf_repo(tmp_path, sharded(2, 3 << 20))
    got = in_child(
        lambda: told(run(repo, tmp_path / "node")),
        lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, 1 << 20)),
    )
    assert got["rules"] == ["stage.file-limit"] and got["ready"] == {}
