"""From a run directory to a printed verdict: read evidence, judge, write the reports, print one."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from jobspec import pipeline
from jobspec.cli.live import observe
from jobspec.cli.live.avoid import keep_off
from jobspec.finding import fail, one_line, visible
from jobspec.log_text import strip_ansi
from jobspec.runs.paths import RunPaths
from jobspec.runtime.base.full_disk import refusal

if TYPE_CHECKING:
    from jobspec.evidence.evidence import Evidence
    from jobspec.report import Report
    from jobspec.report.driver_log import DriverLog
    from jobspec.sweeps.best import Rule
    from jobspec.sweeps.finished import PointRecord
    from jobspec.sweeps.table import SweepTable
    from jobspec.verdict import Cause, Verdict

TAIL_LINES = 20
SWEEP_ONLY = ("csv", "jsonl")


def conclude(
    run: RunPaths, fmt: str, show_tail: bool = True, baseline: Path | None = None, rule: Rule | None = None
) -> int:
    """Print the verdict of a run, or of every point of a sweep; the exit code of the worst."""
    if run.is_sweep and baseline is not None:
        raise fail("usage.arguments", "a sweep has no baseline", fix="name one of its points")
    if run.is_sweep:
        return _conclude_sweep(run, fmt, rule)
    if rule is not None:
        raise fail("usage.arguments", "`--best` chooses a point, and the run is no sweep", fix="leave it out")
    if fmt in SWEEP_ONLY:
        raise fail("usage.arguments", f"`{fmt}` is a format of a sweep's table only", fix="use `json`")
    from jobspec.report.driver_log import driver_log

    evidence, verdict = pipeline.judge_run(run.root, baseline)
    _write_reports(run, verdict, evidence)
    keep_off(run, evidence)
    print_report(evidence, verdict, fmt)
    if fmt == "text" and verdict.exit_code != 0 and show_tail:
        _print_tail(run, verdict.first_cause, driver_log(evidence))
    if fmt == "text" and (run.root / "report.html").is_file():
        print(f"\nreport: {one_line(str(run.root / 'report.html'))}")
    return verdict.exit_code


def write_reports(run: RunPaths) -> None:
    """Judge an ended run and write its reports, those of a sweep's points too; print nothing.

    Raises: JobspecError for a damaged sweep, OSError where the folder cannot be written.
    """
    from jobspec.report import write_reports as write

    if not run.is_sweep:
        evidence, verdict = pipeline.judge_run(run.root)
        write(run.root, verdict, evidence)
        keep_off(run, evidence)
        return
    from jobspec.sweeps.finished import read_points

    points = read_points(run).points
    table, judged = _judged_sweep(run, points)
    for point in points:
        if not point.reused:
            write(point.run.root, judged[point.index][1], judged[point.index][0])
            keep_off(point.run, judged[point.index][0])
    _write_table(run, table)


def conclude_together(runs: Sequence[RunPaths], fmt: str, baseline: Path | None = None) -> int:
    """Print one summary over several runs of one framework; the exit code of the worst."""
    from jobspec.report.joint_summary import worst
    from jobspec.verdict import EXIT_CODES

    if fmt != "summary" or any(run.is_sweep for run in runs):
        what = "several runs, none of them a sweep, have a summary only"
        raise fail("usage.arguments", what, fix="add `--format summary`, or name one run")
    judged = [(run, *pipeline.judge_run(run.root, baseline)) for run in runs]
    names = list(dict.fromkeys(evidence.plan.framework for _, evidence, _ in judged))
    if len(names) > 1:
        what = f"the runs are of {', '.join(f'`{name}`' for name in names)}: one summary is of one framework"
        raise fail("usage.arguments", what, fix="name the runs of one framework")
    for run, evidence, verdict in judged:
        _write_reports(run, verdict, evidence)
        keep_off(run, evidence)
    return EXIT_CODES[worst(_print_joint([(evidence, verdict) for _, evidence, verdict in judged]))]


def _print_joint(judged: Sequence[tuple[Evidence, Verdict]]) -> list[Report]:
    from jobspec.report import build_report
    from jobspec.report.joint_summary import render_joint_summary

    reports = [build_report(verdict, evidence) for evidence, verdict in judged]
    _print_text(render_joint_summary(reports), "summary")
    return reports


def print_report(evidence: Evidence, verdict: Verdict, fmt: str) -> None:
    from jobspec.report import render_report

    _print_text(render_report(verdict, evidence, fmt), fmt)


def _print_text(text: str, fmt: str) -> None:
    from jobspec.report.text import fit

    if fmt in ("text", "summary") and sys.stdout.isatty():
        text = fit(text, shutil.get_terminal_size().columns)
    print(visible(text), end="" if text.endswith("\n") else "\n")


def _write_reports(run: RunPaths, verdict: Verdict, evidence: Evidence) -> None:
    """Write all forms of the printed verdict; in a read-only run directory, only print why not.

    The verdict is not judged anew: for a run in progress, files and terminal could differ.
    """
    from jobspec.report import write_reports

    with _telling_why_not():
        write_reports(run.root, verdict, evidence)


@contextmanager
def _telling_why_not() -> Iterator[None]:
    try:
        yield
    except OSError as problem:
        why, fix = refusal(problem)
        where = f": `{problem.filename}`" if problem.filename else ""
        why = f"{why}{where}; {fix}" if fix else f"{why}{where}"
        print(f"the reports could not be written: {why}", file=sys.stderr)


def _print_tail(run: RunPaths, cause: Cause | None, shown: DriverLog | None) -> None:
    """Print the end of the log that holds the cause; without a cause, of the last log.

    The report itself has shown the end of the failed command's log.
    """
    from jobspec.triage.signatures import masked

    logs = observe.log_files(run)[-1:]
    if cause is not None and cause.file.endswith(".log") and (run.root / cause.file).is_file():
        logs = [run.root / cause.file]
    for path in logs:
        if shown is not None and path == run.root / shown.file:
            continue
        print(visible(f"\nlast lines of {path.relative_to(run.root)}:"))
        for line in observe.tail(path, TAIL_LINES):
            print(visible(f"  {masked(strip_ansi(line))}"))


def sweep_text(run: RunPaths, fmt: str) -> str:
    """The report of a sweep as `fmt`, without its files. Raises: JobspecError for a form that it has not."""
    from jobspec.report.sweep_tables import render_sweep_table
    from jobspec.sweeps.finished import read_points

    fmt = _of_sweep(fmt)
    return render_sweep_table(_judged_sweep(run, read_points(run).points)[0], fmt)


def _of_sweep(fmt: str) -> str:
    from jobspec.report.sweep_tables import SWEEP_FORMATS

    fmt = "text" if fmt == "summary" else fmt
    if fmt not in SWEEP_FORMATS:
        what, fix = (
            f"a sweep has no report as `{fmt}`",
            f"use one of {', '.join(SWEEP_FORMATS)}, or name a point",
        )
        raise fail("usage.arguments", what, fix=fix)
    return fmt


def _conclude_sweep(run: RunPaths, fmt: str, rule: Rule | None) -> int:
    """Print the table of a sweep and write its forms; each point has a report of its own beside it.

    The points of `coverage.levels` are one validation, which people read as one summary.
    """
    from jobspec.planning.levels import is_spread
    from jobspec.report.sweep_tables import render_sweep_table
    from jobspec.sweeps.finished import read_points

    points = read_points(run).points
    joint = is_spread(point.sets for point in points) and fmt in ("text", "summary")
    fmt = _of_sweep(fmt)
    table, judged = _judged_sweep(run, points, rule)
    for point in points:
        if not point.reused:
            evidence, verdict = judged[point.index]
            _write_reports(point.run, verdict, evidence)
            keep_off(point.run, evidence)
    with _telling_why_not():
        _write_table(run, table)
    if joint:
        _print_joint(list(judged.values()))
    else:
        print(render_sweep_table(table, fmt), end="")
    if fmt == "text":
        print(f"\nreport: {one_line(str(run.root / 'report.html'))}")
    return table.exit_code


def _judged_sweep(
    run: RunPaths, points: Sequence[PointRecord], rule: Rule | None = None
) -> tuple[SweepTable, dict[int, tuple[Evidence, Verdict]]]:
    from jobspec.sweeps.table import sweep_table

    judged = {point.index: pipeline.judge_run(point.run.root) for point in points}
    return sweep_table(run, judged, rule), judged


def _write_table(run: RunPaths, table: SweepTable) -> None:
    from jobspec.report.sweep_tables import SWEEP_FILES, render_sweep_table
    from jobspec.runtime.base.safe_write import write_text

    for fmt, name in SWEEP_FILES.items():
        write_text(run.root / name, render_sweep_table(table, fmt))
