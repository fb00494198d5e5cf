"""A verdict in five forms: text, Markdown, JSON, HTML and JUnit XML, all from one model.

Renders and writes; it judges nothing and prints nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

from jobspec.evidence.evidence import Evidence
from jobspec.evidence.read import read_evidence
from jobspec.finding import visible
from jobspec.judging.reproduction import judged
from jobspec.report.content import Report, build_report
from jobspec.report.data import render_json
from jobspec.report.html import render_html
from jobspec.report.junit import render_junit
from jobspec.report.markdown import render_markdown
from jobspec.report.summary import render_summary
from jobspec.report.text import render_text
from jobspec.runtime.base.safe_write import write_text
from jobspec.verdict import Verdict

__all__ = ["FORMATS", "Report", "build_report", "render_report", "write_reports"]

REPORT_FILES = {
    "text": "report.txt",
    "md": "report.md",
    "json": "report.json",
    "html": "report.html",
    "junit": "junit.xml",
}
FORMATS = tuple(REPORT_FILES)  # those that are written; `summary` is only printed
_RENDERERS: Mapping[str, Callable[[Report], str]] = {
    "text": render_text,
    "md": render_markdown,
    "json": render_json,
    "html": render_html,
    "junit": render_junit,
    "summary": render_summary,
}


def render_report(verdict: Verdict, evidence: Evidence, fmt: str) -> str:
    """The report in the form `fmt`: one of `FORMATS`, or `summary`. Raises: KeyError for another one."""
    if fmt not in _RENDERERS:
        raise KeyError(f"`{fmt}` is not a form of the report; there are {', '.join(FORMATS)}")
    return visible(_RENDERERS[fmt](build_report(verdict, evidence)))


def write_reports(
    run_dir: Path, verdict: Verdict | None = None, evidence: Evidence | None = None
) -> dict[str, Path]:
    """Write every form into `run_dir`; returns form -> file.

    Without `evidence` or `verdict` the run directory is read and judged. Each file is replaced whole or not
    at all.
    Raises: OSError when the folder cannot be written.
    """
    evidence = read_evidence(run_dir) if evidence is None else evidence
    if verdict is None:
        evidence, verdict = judged(evidence)
    report = build_report(verdict, evidence)
    written = {fmt: run_dir / name for fmt, name in REPORT_FILES.items()}
    for fmt, path in written.items():
        write_text(path, visible(_RENDERERS[fmt](report)))
    return written
