"""From a run directory to a printed verdict: read evidence, judge, write the reports, print one."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

from jobspec.cli import observe, output
from jobspec.runs import RunPaths

if TYPE_CHECKING:
    from jobspec.evidence_model import Evidence
    from jobspec.verdict import Verdict

TAIL_LINES = 20


def conclude(run: RunPaths, fmt: str, show_tail: bool = True) -> int:
    """Print the verdict of a run, or of every point of a sweep; the exit code of the worst."""
    points = run.points()
    if points:
        return _conclude_sweep(points, fmt)
    evidence, verdict = judge_run(run.root)
    _write_reports(run)
    print_report(evidence, verdict, fmt)
    if fmt == "text" and verdict.exit_code != 0 and show_tail:
        _print_tail(run)
    if fmt == "text" and (run.root / "report.html").is_file():
        print(f"\nreport: {run.root / 'report.html'}")
    return verdict.exit_code


def judge_run(root: Path) -> tuple[Evidence, Verdict]:
    from jobspec.coverage import judge
    from jobspec.evidence import read_evidence

    evidence = read_evidence(root)
    return evidence, judge(evidence)


def print_report(evidence: Evidence, verdict: Verdict, fmt: str) -> None:
    from jobspec.report import render_report

    text = render_report(verdict, evidence, fmt)
    print(text, end="" if text.endswith("\n") else "\n")


def _write_reports(run: RunPaths) -> None:
    """Write all forms of the report; a run directory that is read-only still gets its verdict printed."""
    from jobspec.report import write_reports

    try:
        write_reports(run.root)
    except OSError as problem:
        print(f"the reports could not be written: {problem}", file=sys.stderr)


def _print_tail(run: RunPaths) -> None:
    for path in observe.log_files(run)[-1:]:
        print(f"\nlast lines of {path.relative_to(run.root)}:")
        for line in observe.tail(path, TAIL_LINES):
            print(f"  {line}")


def _conclude_sweep(points: list[RunPaths], fmt: str) -> int:
    judged = []
    for point in points:
        _, verdict = judge_run(point.root)
        _write_reports(point)
        judged.append((point, verdict))
    if fmt == "json":
        output.print_json(
            [
                {"point": int(point.run_id), "result": str(verdict.result), "exit_code": verdict.exit_code}
                for point, verdict in judged
            ]
        )
    else:
        rows = [(point.run_id, str(verdict.result), verdict.reason) for point, verdict in judged]
        output.print_table(("POINT", "RESULT", "REASON"), rows)
    codes = {verdict.exit_code for _, verdict in judged}
    return next((code for code in (1, 3, 4) if code in codes), 0)
