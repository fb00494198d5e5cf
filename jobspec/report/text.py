"""The report as plain text: the summary that a terminal and a pull request can both take."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterable, Iterator

from jobspec.finding import one_line
from jobspec.report.content import Report
from jobspec.report.lines import (
    MAX_LINE,
    attempt_lines,
    figure_name,
    figure_text,
    figure_values,
    place,
    reproduction_lines,
    tracker_lines,
    where,
)
from jobspec.report.summary import guide_form
from jobspec.verdict import Cause, Deliverable, Figure

COLUMN = re.compile(r"^ *- |^ *\w+: +|  +")  # where a column begins: after a bullet, a key, two spaces


def render_text(report: Report) -> str:
    """Result, level, deliverables, figures, first cause and what was not proved.

    The short form of a framework's guide, if any, comes first. The caller names the folder of the reports:
    this text is itself one of the files.
    """
    verdict = report.verdict
    run = report.run_id if report.run_id != report.name else ""  # of a foreign run both are its folder's
    lines = [f"{verdict.result.upper()}  {verdict.level}  {report.name} {run}".rstrip()]
    lines.extend([f"  {one_line(verdict.reason)}"] if verdict.reason else [])
    lines.append(f"  {where(report)}")
    lines.extend(_section("deliverables", _deliverables(verdict.deliverables)))
    lines.extend(_section("figures", _figures(verdict.figures)))
    lines.extend(_section("reproduction", reproduction_lines(verdict)))
    lines.extend(_section(verdict.cause_title, _cause(verdict.first_cause)))
    lines.extend(_driver_log(report))
    lines.extend(_section("attempts", attempt_lines(verdict)))
    lines.extend(_section("trackers", tracker_lines(report)))
    lines.extend(_section("not proved", (f"- {item}" for item in verdict.limitations)))
    findings = (line for finding in verdict.findings for line in finding.text().splitlines())
    lines.extend(_section("findings", findings))
    return guide_form(report) + "\n".join(lines) + "\n"


def fit(text: str, columns: int) -> str:
    """`text` for a screen of `columns`: a long line goes on under the column in which it began.

    Words stay whole: nobody can copy a path or a number that is cut in two.
    """
    return "\n".join(part for line in text.split("\n") for part in _fit_line(line, columns))


def _fit_line(line: str, columns: int) -> list[str]:
    if len(line) <= columns:
        return [line]
    starts = [match.end() for match in COLUMN.finditer(line)]
    hang = max((start for start in starts if start <= columns * 2 // 3), default=0)
    wrapped = textwrap.wrap(
        line[hang:], columns - hang, break_long_words=False, break_on_hyphens=False, drop_whitespace=True
    )
    return [line[:hang] + wrapped[0], *(" " * hang + part for part in wrapped[1:])] if wrapped else [line]


def _section(title: str, lines: Iterable[str]) -> Iterator[str]:
    body = list(lines)
    if body:
        yield ""
        yield title
        yield from (f"  {one_line(line)}" for line in body)


def _deliverables(items: tuple[Deliverable, ...]) -> Iterator[str]:
    width = max((len(item.name) for item in items), default=0)
    for item in items:
        optional = "" if item.required or item.status == "Not requested" else " (not required)"
        yield f"{item.status:<13}  {item.name:<{width}}  {item.reason}{optional}".rstrip()


def _figures(figures: tuple[Figure, ...]) -> Iterator[str]:
    width = max((len(figure_name(figure)) for figure in figures), default=0)
    for figure in figures:
        yield f"{figure_name(figure):<{width}}  {figure_text(figure)}  ({figure_values(figure)})"


def _driver_log(report: Report) -> Iterator[str]:
    log = report.driver_log
    if log is not None:
        yield from _section(f"last lines of {log.file} ({log.command}: {log.ended})", log.lines)


def _cause(cause: Cause | None) -> Iterator[str]:
    if cause is None:
        return
    yield " ".join(part for part in (f"{cause.verdict} [{cause.kind}]", cause.node, place(cause)) if part)
    said = "line" if cause.signature or cause.context else "what"  # else the words are jobspec's own
    rows = ((said, cause.text[:MAX_LINE]), ("why", cause.why), ("fix", cause.fix), ("see", cause.source))
    yield from (f"  {name + ':':<5} {text}" for name, text in rows if text)
