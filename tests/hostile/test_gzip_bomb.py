"""Packed logs that hold far more than was ever printed: read in bounds, told of, and nothing stays behind."""

from __future__ import annotations

import gzip
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from jobspec.evidence.found_logs import find_logs
from jobspec.triage import gunzip, scan_files
from tests.kits.project_kit import Project

MIB = 1024**2
CAUSE = b"torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB\n"
LINE = b"." * 65535 + b"\n"


def bomb(path: Path, mebibytes: int) -> Path:
    """A log with a cause and then `mebibytes` of one line."""
    with gzip.open(path, "wb") as file:
        file.write(CAUSE)
        for _ in range(mebibytes):
            file.write(LINE * (MIB // len(LINE)))
    return path


def test_ratio_is_bounded_and_told(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gunzip, "FREE_BYTES", 16 * MIB)
    folder = project.root / "logs"
    folder.mkdir()
    file = bomb(folder / "run.log.gz", 60)
    triage = project.cli("triage", file)
    assert triage.code == 1
    assert "OutOfMemoryError" in triage.out
    judge = project.cli("judge", folder, "--framework", "command")
    assert judge.code != 70
    for said in (triage.err, judge.out):
        assert "warning[file.bomb]" in said
        read = re.search(r"only the first (\d+) MiB of", said)
        assert read is not None
        assert 16 <= int(read[1]) < 30
        assert "more than 500 times its size" in said


def test_sound_logs_and_small_ones_are_read_whole(tmp_path: Path) -> None:
    file = bomb(tmp_path / "run.log.gz", 20)
    problems: list[object] = []
    assert scan_files([file], problems=problems)  # type: ignore[arg-type]
    logs, told = find_logs(tmp_path, tmp_path / "unpacked")
    assert [log.path.stat().st_size for log in logs] == [20 * MIB + len(CAUSE)]
    assert (problems, told) == ([], [])


def test_total_over_all_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gunzip.Budget, "__init__", lambda self: setattr(self, "left", 15 * MIB))
    for number in range(3):
        bomb(tmp_path / f"{number}.log.gz", 10)
    logs, told = find_logs(tmp_path, tmp_path / "unpacked")
    assert [finding.file for finding in told if finding.rule == "file.bomb"] == ["1.log.gz", "2.log.gz"]
    assert sum(log.path.stat().st_size for log in logs) <= 18 * MIB


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_temporary_files_go_when_the_command_is_told_to_end(project: Project, number: signal.Signals) -> None:
    folder, temporary = project.root / "logs", project.root / "tmp"
    folder.mkdir()
    temporary.mkdir()
    for index in range(8):
        bomb(folder / f"{index}.log.gz", 60)
    argv = [sys.executable, "-m", "jobspec.cli", "judge", str(folder), "--framework", "command"]
    env = {**os.environ, "TMPDIR": str(temporary)}
    with subprocess.Popen(argv, env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT) as process:
        while not [*temporary.rglob("*.log")]:
            assert process.poll() is None
            time.sleep(0.01)
        process.send_signal(number)
        assert process.wait() == 128 + number
    assert [*temporary.iterdir()] == []
