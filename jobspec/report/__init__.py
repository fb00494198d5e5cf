"""A verdict in five forms: text, Markdown, JSON, HTML and JUnit XML, all from one model.

Renders and writes; it judges nothing and prints nothing.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

from jobspec.evidence.evidence import Evidence
from jobspec.evidence.read import read_evidence
from jobspec.report.content import REPORT_FILES, Report, build_report, report_path
from jobspec.verdict import Verdict

__all__ = ["FORMATS", "Report", "build_report", "render_report", "write_reports"]

FORMATS = tuple(REPORT_FILES)  # those that are written; `summary` is only printed


def render_report(verdict: Verdict, evidence: Evidence, fmt: str) -> str:
    """The report in the form `fmt`: one of `FORMATS`, or `summary`. Raises: KeyError for another one."""
    return _renderer(fmt)(build_report(verdict, evidence))


def write_reports(
    run_dir: Path, verdict: Verdict | None = None, evidence: Evidence | None = None
) -> dict[str, Path]:
    """Write every form into `run_dir`; returns form -> file.

    Evidence is read and judged where it is not given. Each file is replaced whole or not at all.
    Raises: OSError when the folder cannot be written.
    """
    evidence = read_evidence(run_dir) if evidence is None else evidence
    if verdict is None:
        from jobspec.judging.judge import judge

        verdict = judge(evidence)
    report = build_report(verdict, evidence)
    written = {}
    for fmt in FORMATS:
        written[fmt] = report_path(run_dir, fmt)
        _write(written[fmt], _renderer(fmt)(report))
    return written


def _renderer(fmt: str) -> Callable[[Report], str]:
    """Imports only what this form needs: the text report must not wait for Jinja."""
    if fmt == "text":
        from jobspec.report.text import render_text

        return render_text
    if fmt == "summary":
        from jobspec.report.summary import render_summary

        return render_summary
    if fmt == "md":
        from jobspec.report.markdown import render_markdown

        return render_markdown
    if fmt == "json":
        from jobspec.report.data import render_json

        return render_json
    if fmt == "junit":
        from jobspec.report.junit import render_junit

        return render_junit
    if fmt == "html":
        from jobspec.report.html import render_html

        return render_html
    raise KeyError(f"`{fmt}` is not a form of the report; there are {', '.join(FORMATS)}")


def _write(path: Path, text: str) -> None:
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        temporary.write_bytes(text.encode("utf-8", "replace"))
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)
