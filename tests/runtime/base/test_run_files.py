"""Files of a run folder: what is opened, how much of it is read, and what a pipe under a file's name does."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from jobspec.evidence.found_logs import find_logs
from jobspec.evidence.read import read_evidence
from jobspec.judging.judge import judge
from jobspec.runtime.base import run_files
from jobspec.runtime.base.run_files import UnfitFileError, open_file, read_lines, read_text
from jobspec.verdict import Result
from tests.kits.verdict_kit import StandInFramework, passing_run


def test_regular_files_are_read_whole(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    path.write_text("ä\n")
    (tmp_path / "link").symlink_to(path)
    assert read_text(path) == read_text(tmp_path / "link") == "ä\n"
    path.write_bytes(b"\xff")
    assert read_text(path, errors="replace") == "\ufffd"
    with pytest.raises(UnicodeDecodeError):
        read_text(path)


def test_pipes_devices_and_folders_are_refused(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")  # nobody writes: an open that waits would never return
    for path in (tmp_path / "pipe", Path(os.devnull)):
        with pytest.raises(UnfitFileError, match="not a regular file"):
            open_file(path)
    with pytest.raises(IsADirectoryError):
        open_file(tmp_path)
    with pytest.raises(FileNotFoundError):
        open_file(tmp_path / "nosuch")


def test_no_file_is_read_whole_that_memory_cannot_hold(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run_files, "MAX_FILE_BYTES", 2 * 1024**2)
    path = tmp_path / "a.json"
    with path.open("wb") as file:
        file.truncate(2 * 1024**2)
    assert len(run_files.read_bytes(path)) == 2 * 1024**2
    with path.open("ab") as file:
        file.write(b"x")
    with pytest.raises(UnfitFileError, match="larger than 2 MiB"):
        run_files.read_bytes(path)


def test_lines_end_with_a_line_feed_and_are_cut_where_they_are_too_long(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "a.log"
    path.write_bytes("a\rb\u2028c\n\nd".encode())
    assert list(read_lines(path)) == ["a\rb\u2028c\n".encode(), b"\n", b"d"]
    monkeypatch.setattr(run_files, "MAX_LINE_BYTES", 4)
    path.write_bytes(b"abc\nabcd\nabcdefghijk\nx\nabcdefgh")
    assert list(read_lines(path)) == [b"abc\n", b"abcd", b"abcd", b"x\n", b"abcd"]


@pytest.mark.parametrize(
    ("name", "rule"),
    [
        ("plan.json", "evidence.plan"),
        ("attempts/1/events.jsonl", "evidence.events"),
        ("attempts/1/results.json", "evidence.results"),
        ("attempts/1/metrics/metrics.jsonl", "metrics.unreadable"),
        ("attempts/1/metrics/dump.json", "metrics.unreadable"),
        ("artifacts/manifest.json", "evidence.manifest"),
    ],
)
def test_pipe_in_a_run_folder_is_named_and_waited_for_by_nobody(tmp_path: Path, name: str, rule: str) -> None:
    run = passing_run(tmp_path)
    (run.root / name).unlink(missing_ok=True)
    os.mkfifo(run.root / name)
    evidence = read_evidence(run.root)
    assert rule in {finding.rule for finding in (*evidence.problems, *evidence.metrics.findings)}
    if not name.endswith("dump.json"):  # it holds nothing that the others do not
        assert judge(evidence, StandInFramework()).result is not Result.PASS


def test_other_pipes_of_a_run_folder_hold_nothing(tmp_path: Path) -> None:
    run = passing_run(tmp_path)
    for name in ("attempts/1/metrics/events.out.tfevents.1", "attempts/1/logs/n1/other.log", "job-1.log"):
        os.mkfifo(run.root / name)
    os.mkfifo(tmp_path / "attempts/1/logs/n1/packed.log.gz")
    assert judge(read_evidence(run.root), StandInFramework()).result is Result.PASS
    logs, _ = find_logs(tmp_path / "attempts", tmp_path / "unpacked")
    assert [log.name for log in logs] == ["1/logs/n1/train.log"]
