"""Logs in the page of a failed run: folded, and the line of the first cause marked."""

from __future__ import annotations

from pathlib import Path

import pytest

from jobspec.evidence.evidence import Evidence
from jobspec.evidence.read import read_evidence
from jobspec.judging.judge import judge
from jobspec.report import build_report, render_report
from jobspec.report.driver_log import MAX_CHARS, TAIL_BYTES
from jobspec.report.log_excerpts import AROUND, MAX_LOGS, TAIL_LINES, log_excerpts
from jobspec.verdict import Cause, Result
from tests.kits.verdict_kit import RunFolder, StandInFramework, passing_run

DISK = "OSError: [Errno 28] No space left on device: '<b>/data</b>'"


def failed(tmp_path: Path, log: str) -> Evidence:
    run = RunFolder(tmp_path)
    run.phase("driver", outcome="failed")
    run.log(log)
    run.log("nothing\nto see\n", "other.log")
    run.write()
    run.results("failed", 1)
    return read_evidence(run.root)


def test_first_cause_is_marked_in_its_log(tmp_path: Path) -> None:
    evidence = failed(tmp_path, "".join(f"line {n}\n" for n in range(1, 500)) + f"{DISK}\n" + "after\n" * 300)
    verdict = judge(evidence, StandInFramework())
    first, other = build_report(verdict, evidence).logs
    assert (first.file, first.first, first.lines[first.at]) == (
        "attempts/1/logs/n1/train.log",
        500 - AROUND,
        DISK,
    )
    assert (first.lines[0], len(first.lines)) == (f"line {500 - AROUND}", 2 * AROUND + 1)
    assert (other.lines, other.at) == (("nothing", "to see"), -1)
    html = render_report(verdict, evidence, "html")
    assert html.count("<mark") == 1
    assert "OSError: [Errno 28] No space left on device: &#39;&lt;b&gt;/data&lt;/b&gt;&#39;</mark>" in html
    assert "first cause at line 500" in html


def test_logs_of_a_passed_run_stay_at_home(tmp_path: Path) -> None:
    evidence = read_evidence(passing_run(tmp_path).root)
    assert build_report(judge(evidence, StandInFramework()), evidence).logs == ()


@pytest.mark.parametrize("line", [0, 1, 3, 4])
def test_cause_at_the_ends_of_a_log_and_beyond(tmp_path: Path, line: int) -> None:
    """A log may be shorter than when it was searched: its end is shown then, and nothing is marked."""
    evidence = failed(tmp_path, "one\n\nthree\n")
    cause = Cause("x", "disk", Result.FAIL, file="attempts/1/logs/n1/train.log", line=line)
    first = next(item for item in log_excerpts(evidence, cause) if item.file == cause.file)
    assert first.at == (line - 1 if line in (1, 3) else -1)
    assert first.lines == (("one", "", "three") if line in (1, 3) else ("one", "three"))


@pytest.mark.parametrize(
    "file", ["../outside.log", "attempts/../../outside.log", "/etc/hostname", "a\0b", "attempts"]
)
def test_nothing_outside_of_the_run_is_shown(tmp_path: Path, file: str) -> None:
    (tmp_path / "outside.log").write_text("a secret\n")
    evidence = failed(tmp_path / "run", "one\n")
    cause = Cause("x", "disk", Result.FAIL, file=file, line=1)
    shown = {item.file for item in log_excerpts(evidence, cause)}
    assert shown == {"attempts/1/logs/n1/train.log", "attempts/1/logs/n1/other.log"}


def test_link_out_of_the_run_is_not_followed(tmp_path: Path) -> None:
    """A stranger's run folder must not put a file of its reader into the report."""
    secret = tmp_path / "id_ed25519"
    secret.write_text("a secret\n")
    failed(tmp_path / "run", "one\n")
    logs = tmp_path / "run/attempts/1/logs/n1"
    for name, target in (("train.log", secret), ("other.log", "other.log")):  # the second is a circle
        (logs / name).unlink()
        (logs / name).symlink_to(target)
    evidence = read_evidence(tmp_path / "run")
    verdict = judge(evidence, StandInFramework())
    report = build_report(verdict, evidence)
    assert (report.logs, report.driver_log) == ((), None)


def test_excerpts_are_short_and_plain(tmp_path: Path) -> None:
    evidence = failed(tmp_path, "old\n" * 50_000 + "\x1b[31mred\x1b[0m \x07\n" + "x" * 5000 + "\n")
    train = next(item for item in log_excerpts(evidence, None) if item.file.endswith("train.log"))
    assert len(train.lines) == TAIL_LINES
    assert train.lines[-2:] == ("red \\x07", "x" * MAX_CHARS)
    for index in range(20):
        RunFolder(tmp_path).log("a\n", f"more-{index}.log")
    assert len(log_excerpts(read_evidence(tmp_path), None)) == MAX_LOGS


def test_secret_is_not_cut_where_the_read_end_begins(tmp_path: Path) -> None:
    """The rest of a token is no longer known as one."""
    token, same = "hf_" + "aB3" * 12, "the same line\n"
    end = same * ((TAIL_BYTES - 20) // len(same))
    evidence = failed(tmp_path, f"login with {token}\n{end}")
    report = build_report(judge(evidence, StandInFramework()), evidence)
    assert report.driver_log is not None
    assert report.driver_log.lines == (f"the same line  [and {end.count(same) - 1} more alike]",)
    train = next(item for item in report.logs if item.file.endswith("train.log"))
    assert set(train.lines) == {"the same line"}
