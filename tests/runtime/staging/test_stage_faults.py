"""The fault table of staging, sources: nothing unverified is accepted, and the finding names the file."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from jobspec.runtime.staging import items
from jobspec.runtime.staging.hfcache import FileEntry
from jobspec.runtime.staging.transfer import Stream, open_local
from tests.runtime.staging.stage_kit import (
    COMMIT,
    NAME,
    Source,
    blob_of,
    content,
    digest_of,
    flip,
    hf_repo,
    item,
    rules,
    run,
    safetensors,
    sharded,
    snapshot,
)

# Source


def test_bit_flipped_in_source_is_named_with_both_hashes(tmp_path: Path) -> None:
    repo = hf_repo(tmp_path, sharded())
    blob = blob_of(repo, NAME)
    flip(blob)
    result = run(repo, tmp_path / "node")
    (finding,) = result.findings
    assert (finding.rule, finding.file, result.ready) == ("stage.corrupt", str(blob), {})
    assert NAME in finding.what and blob.name in finding.why and digest_of(blob) in finding.why
    assert not snapshot(tmp_path / "node").exists()


def test_source_truncated_is_seen_before_copying(tmp_path: Path) -> None:
    repo, source = hf_repo(tmp_path, sharded()), Source()
    os.truncate(blob_of(repo, NAME), 1000)
    result = run(repo, tmp_path / "node", open_source=source)
    assert rules(result) == ["stage.corrupt"] and NAME in result.findings[0].what
    assert source.opened == []


def test_truncated_file_without_a_header_is_seen_by_its_hash(tmp_path: Path) -> None:
    repo = hf_repo(tmp_path, {**sharded(), "tokenizer.json": b"t" * 5000})
    os.truncate(blob_of(repo, "tokenizer.json"), 4096)
    result = run(repo, tmp_path / "node")
    assert rules(result) == ["stage.corrupt"] and "tokenizer.json" in result.findings[0].what
    assert not snapshot(tmp_path / "node").exists()


def test_repaired_source_needs_only_the_rest(tmp_path: Path) -> None:
    files = sharded()
    repo = hf_repo(tmp_path, files)
    flip(blob_of(repo, NAME))
    run(repo, tmp_path / "node", lanes=1)
    hf_repo(tmp_path / "again", files)
    blob_of(repo, NAME).write_bytes(files[NAME])
    result = run(repo, tmp_path / "node", lanes=1)
    assert content(Path(result.ready["model"])) == files
    assert result.bytes < sum(map(len, files.values()))


class Truncating(Source):
    """Cuts the file off while it is read."""

    def after(self, entry: FileEntry, view: memoryview) -> None:
        os.truncate(entry.path, 10)


@pytest.mark.parametrize("layout", ["hf", "plain"])
def test_source_cut_off_while_read(tmp_path: Path, layout: str) -> None:
    repo = hf_repo(tmp_path, {"model.safetensors": safetensors(9 << 20)})
    source = repo if layout == "hf" else repo / "snapshots" / COMMIT
    result = run(source, tmp_path / "node", layout=layout, open_source=Truncating())
    assert rules(result) == ["stage.corrupt"] and "ends after" in result.findings[0].what


class Touching(Source):
    def after(self, entry: FileEntry, view: memoryview) -> None:
        os.utime(entry.path, ns=(1, 1))


def test_plain_source_changed_while_read(tmp_path: Path) -> None:
    (tmp_path / "data.jsonl").write_text("{}\n")
    result = run(tmp_path / "data.jsonl", tmp_path / "node", layout="plain", open_source=Touching())
    assert rules(result) == ["stage.changed"]


class Vanishing(Source):
    def __call__(self, entry: FileEntry, offset: int) -> Stream:
        Path(entry.path).unlink(missing_ok=True)
        return super().__call__(entry, offset)


def test_source_vanishes_between_list_and_copy(tmp_path: Path) -> None:
    result = run(hf_repo(tmp_path, sharded()), tmp_path / "node", open_source=Vanishing())
    assert rules(result) == ["stage.vanished"] and result.findings[0].file


def test_missing_source(tmp_path: Path) -> None:
    result = run(tmp_path / "no such", tmp_path / "node", layout="plain")
    assert rules(result) == ["stage.vanished"] and str(tmp_path / "no such") in result.findings[0].what


@pytest.mark.parametrize("layout", ["hf", "plain"])
def test_empty_folder(tmp_path: Path, layout: str) -> None:
    empty = tmp_path / "models--a--b"
    (empty / "snapshots" / COMMIT).mkdir(parents=True)
    source = empty if layout == "hf" else empty / "snapshots" / COMMIT
    assert rules(run(source, tmp_path / "node", layout=layout)) == ["stage.empty"]


def test_dangling_link(tmp_path: Path) -> None:
    repo = hf_repo(tmp_path, sharded())
    blob_of(repo, "config.json").unlink()
    result = run(repo, tmp_path / "node")
    assert rules(result) == ["stage.dangling"] and "`config.json`" in result.findings[0].what


class Failing(Source):
    """read(2) fails `times` times, as it does after a server was replaced."""

    def __init__(self, code: int, times: int) -> None:
        super().__init__()
        self.code, self.times = code, times

    def after(self, entry: FileEntry, view: memoryview) -> None:
        if self.times and entry.name == NAME:
            self.times -= 1
            raise OSError(self.code, os.strerror(self.code))


def test_stale_handle_is_tried_again(tmp_path: Path) -> None:
    repo, source = hf_repo(tmp_path, sharded()), Failing(errno.ESTALE, 2)
    result = run(repo, tmp_path / "node", open_source=source)
    assert result.findings == () and source.opened.count(NAME) == 3


def test_handle_that_stays_stale_ends(tmp_path: Path) -> None:
    repo = hf_repo(tmp_path, sharded())
    result = run(repo, tmp_path / "node", open_source=Failing(errno.ESTALE, 99))
    assert rules(result) == ["stage.vanished"] and "stale" in result.findings[0].what
    assert result.findings[0].file == str(blob_of(repo, NAME))


class FlippingOnce(Source):
    done = False

    def after(self, entry: FileEntry, view: memoryview) -> None:
        if entry.name == NAME and not self.done:
            self.done = True
            view[5] ^= 1


def test_bit_flipped_in_flight_is_read_again(tmp_path: Path) -> None:
    files, source = sharded(), FlippingOnce()
    result = run(hf_repo(tmp_path, files), tmp_path / "node", open_source=source)
    assert result.findings == () and source.opened.count(NAME) == 2
    assert content(Path(result.ready["model"])) == files


# The node's own disk


def test_bit_flipped_at_rest_is_copied_again(tmp_path: Path) -> None:
    files = sharded()
    repo = hf_repo(tmp_path, files)
    ready = Path(run(repo, tmp_path / "node").ready["model"])
    flip((ready / NAME).resolve())
    source = Source()
    result = run(repo, tmp_path / "node", open_source=source)
    assert source.opened == [NAME] and result.findings == ()
    assert content(ready) == files


def test_silent_flip_at_rest_is_found_by_rehash(tmp_path: Path) -> None:
    """Same size, mtime and inode: only reading can tell, and `rehash` reads."""
    files = sharded()
    repo = hf_repo(tmp_path, files)
    ready = Path(run(repo, tmp_path / "node").ready["model"])
    flip((ready / NAME).resolve(), keep_times=True)
    assert run(repo, tmp_path / "node").cached
    source = Source()
    run(repo, tmp_path / "node", rehash=True, open_source=source)
    assert source.opened == [NAME] and content(ready) == files


def test_deleted_blob_comes_back(tmp_path: Path) -> None:
    files = sharded()
    repo = hf_repo(tmp_path, files)
    ready = Path(run(repo, tmp_path / "node").ready["model"])
    (ready / NAME).resolve().unlink()
    source = Source()
    run(repo, tmp_path / "node", open_source=source)
    assert source.opened == [NAME] and content(ready) == files


def test_lost_journal_costs_a_hash_and_no_copy(tmp_path: Path) -> None:
    repo = hf_repo(tmp_path, sharded())
    home = Path(run(repo, tmp_path / "node").hf_home)
    (home / "stage" / f"{repo.name}.journal").unlink()
    source = Source()
    result = run(repo, tmp_path / "node", open_source=source)
    assert result.findings == () and (result.bytes, source.opened) == (0, [])


@pytest.mark.parametrize("damage", [b'{"v": 1, "key": "torn', b"\x00" * 300, b'{"v": 9}\n[]\nnull\n'])
def test_damaged_journal_is_no_obstacle(tmp_path: Path, damage: bytes) -> None:
    repo = hf_repo(tmp_path, sharded())
    home = Path(run(repo, tmp_path / "node").hf_home)
    with (home / "stage" / f"{repo.name}.journal").open("ab") as stream:
        stream.write(damage)
    blob_of(repo, NAME)
    (Path(run(repo, tmp_path / "node").ready["model"]) / NAME).resolve().unlink()
    assert run(repo, tmp_path / "node").findings == ()
    assert run(repo, tmp_path / "node").cached


def test_open_local_starts_at_the_offset(tmp_path: Path) -> None:
    (tmp_path / "f").write_bytes(b"0123456789")
    buffer = bytearray(4)
    stream = open_local(FileEntry("f", str(tmp_path / "f"), 10, 0, 0o644), 7)
    assert (stream.readinto(memoryview(buffer)), bytes(buffer)) == (3, b"789\0")
    stream.close()


def test_items_share_one_result(tmp_path: Path) -> None:
    """A fault in the second item keeps the first one out of training, but on the disk."""
    good, bad = hf_repo(tmp_path, sharded(1)), hf_repo(tmp_path, sharded(1, 999), org="acme--bad")
    flip(blob_of(bad, "config.json"), offset=0)
    result = items.run([item(good), item(bad, name="judge")], str(tmp_path / "node"), lambda e, d: None, 60)
    assert rules(result) == ["stage.corrupt"] and list(result.ready) == ["model"]
    assert not result.ok
