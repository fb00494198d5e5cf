"""The report as plain text: the summary that a terminal and a pull request can both take."""

from __future__ import annotations

import math
import re
import textwrap
from collections.abc import Iterable, Iterator

from jobspec.report.content import Report
from jobspec.units import duration
from jobspec.verdict import AttemptVerdict, Cause, Deliverable, EvidenceItem, Figure

COLUMN = re.compile(r"^ *- |^ *\w+: +|  +")  # where a column begins: after a bullet, a key, two spaces
MAX_LINE = 200  # characters of a log line shown; the report names its file and line


def render_text(report: Report) -> str:
    """Result, level, deliverables, figures, first cause and what was not proved.

    The short form of a framework's guide, where it has one, comes first. Where the written report lies is
    for the caller to say: this text is also one of its files.
    """
    verdict = report.verdict
    run = report.run_id if report.run_id != report.name else ""  # of a foreign run both are its folder's
    lines = [f"{verdict.result.upper()}  {verdict.level}  {report.name} {run}".rstrip()]
    lines.extend([f"  {verdict.reason}"] if verdict.reason else [])
    lines.append(f"  {where(report)}")
    lines.extend(_section("deliverables", _deliverables(verdict.deliverables)))
    lines.extend(_section("figures", _figures(verdict.figures)))
    lines.extend(_section("first cause", _cause(verdict.first_cause)))
    lines.extend(_section("attempts", _attempts(verdict.attempts)))
    lines.extend(_section("not proved", (f"- {item}" for item in verdict.limitations)))
    findings = (line for finding in verdict.findings for line in finding.text().splitlines())
    lines.extend(_section("findings", findings))
    return guide_form(report) + "\n".join(lines) + "\n"


def guide_form(report: Report, before: str = "", after: str = "\n") -> str:
    """The short form between `before` and `after`; nothing for a framework without a guide."""
    if not report.guide:
        return ""
    from jobspec.report.summary import render_summary  # it builds on this module

    return f"{before}{render_summary(report)}{after}"


def where(report: Report) -> str:
    """Framework, cluster, size and duration in one line."""
    each = " each" if report.nodes_planned > 1 else ""
    gpus = f", {counted(report.gpus_per_node, 'GPU')}{each}" if report.gpus_per_node else ", no GPU"
    nodes = counted(report.nodes_planned, "node") + gpus
    parts = [
        report.framework,
        f"on {report.cluster}" if report.cluster else "",
        nodes if report.nodes_planned else "size not known",  # of a run that jobspec did not launch
        duration(report.seconds) if report.seconds else "",
    ]
    return ", ".join(part for part in parts if part)


def fit(text: str, columns: int) -> str:
    """`text` for a screen of `columns`: long lines go on under the column that they began in.

    Words stay whole: a path or a number that a terminal cuts in two can be neither read nor copied.
    """
    return "\n".join(part for line in text.split("\n") for part in _fit_line(line, columns))


def _fit_line(line: str, columns: int) -> list[str]:
    if len(line) <= columns:
        return [line]
    starts = [found.end() for found in COLUMN.finditer(line)]
    hang = max((start for start in starts if start <= columns * 2 // 3), default=0)
    wrapped = textwrap.wrap(
        line[hang:], columns - hang, break_long_words=False, break_on_hyphens=False, drop_whitespace=True
    )
    return [line[:hang] + wrapped[0], *(" " * hang + part for part in wrapped[1:])] if wrapped else [line]


def counted(number: int, word: str) -> str:
    """`1 step`, `2 steps`."""
    return f"{number} {word}{'' if number == 1 else 's'}"


def number(value: float) -> str:
    """A figure for people: three significant digits, thousands in full; `nan` and `inf` as they are."""
    if math.isfinite(value) and value == int(value) and abs(value) < 1e6:
        return str(int(value))
    return f"{value:.0f}" if 1000 <= abs(value) < 1e7 else f"{value:.3g}"


def place(item: EvidenceItem) -> str:
    """`file:line` of a piece of evidence, as far as it has one."""
    return f"{item.file}:{item.line}" if item.line else item.file


def evidence_text(item: EvidenceItem) -> str:
    """One piece of evidence in one line."""
    value = "" if item.value is None or item.metric in item.text else f"{item.metric} = {number(item.value)}"
    return "  ".join(part for part in (place(item), value, item.text[:MAX_LINE]) if part)


def figure_text(figure: Figure) -> str:
    """`0.15 -> 0.84`."""
    return f"{number(figure.first)} -> {number(figure.last)}{' ' + figure.unit if figure.unit else ''}"


def attempt_text(attempt: AttemptVerdict) -> str:
    """How one attempt ended, in one line."""
    code = "" if attempt.exit_code is None else f", exit code {attempt.exit_code}"
    steps = "" if attempt.steps is None else f", steps {attempt.steps[0]} to {attempt.steps[1]}"
    reason = f": {attempt.reason}" if attempt.reason else ""
    return f"{attempt.number}. {attempt.outcome}{code}{steps}{reason}"


def _section(title: str, lines: Iterable[str]) -> Iterator[str]:
    found = list(lines)
    if found:
        yield ""
        yield title
        yield from (f"  {line}" for line in found)


def _deliverables(items: tuple[Deliverable, ...]) -> Iterator[str]:
    width = max((len(item.name) for item in items), default=0)
    for item in items:
        optional = "" if item.required or item.status == "Not requested" else " (not required)"
        yield f"{item.status:<13}  {item.name:<{width}}  {item.reason}{optional}".rstrip()


def _figures(figures: tuple[Figure, ...]) -> Iterator[str]:
    width = max((len(figure.name) for figure in figures), default=0)
    for figure in figures:
        yield f"{figure.name:<{width}}  {figure_text(figure)}  over {counted(figure.steps, 'step')}"


def _cause(cause: Cause | None) -> Iterator[str]:
    if cause is None:
        return
    at = f"{cause.file}:{cause.line}" if cause.line else cause.file
    yield " ".join(part for part in (f"{cause.verdict} [{cause.kind}]", cause.node, at) if part)
    rows = (("line", cause.text[:MAX_LINE]), ("why", cause.why), ("fix", cause.fix), ("see", cause.source))
    yield from (f"  {name + ':':<5} {text}" for name, text in rows if text)


def _attempts(attempts: tuple[AttemptVerdict, ...]) -> Iterator[str]:
    if len(attempts) > 1:
        yield from (attempt_text(item) for item in attempts)
