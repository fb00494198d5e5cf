"""Logs that go away or begin anew while a command looks at them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from jobspec.cli.commands import logs
from jobspec.cli.live import observe
from jobspec.runs.paths import RunPaths


def test_log_that_begins_anew_is_printed_from_its_start(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "job-1.log"
    path.write_text("the first attempt\n")
    printer = logs._Printer(RunPaths(tmp_path))
    printer.print_new([path])
    path.write_text("the second\n")
    printer.print_new([path])
    path.write_text("the second\nand more of it\n")
    printer.print_new([path])
    assert capsys.readouterr().out == "the first attempt\nthe second\nand more of it\n"


def test_log_that_is_gone_is_left_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    kept, gone = tmp_path / "job-1.log", tmp_path / "job-2.log"
    kept.write_text("kept\n")
    gone.write_text("")
    run, glob = RunPaths(tmp_path), Path.glob

    def list_then_remove(folder: Path, pattern: str) -> Iterator[Path]:
        found = list(glob(folder, pattern))
        gone.unlink(missing_ok=True)
        yield from found

    with monkeypatch.context() as patch:
        patch.setattr(Path, "glob", list_then_remove)
        assert run.job_logs() == [kept]
    logs._Printer(run).print_new([gone, kept])
    assert observe.tail(gone, 5) == []
    assert "kept" in capsys.readouterr().out
