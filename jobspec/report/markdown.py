"""The report as Markdown, to paste into a pull request."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from jobspec.report.content import Report
from jobspec.report.lines import (
    MAX_LINE,
    attempt_lines,
    evidence_text,
    figure_text,
    figure_values,
    place,
    reproduction_lines,
    tracker_lines,
    where,
)
from jobspec.report.summary import guide_form, state
from jobspec.verdict import Verdict

SPECIAL = str.maketrans({char: f"\\{char}" for char in "\\`*_[]<>|#~"} | {"\n": " ", "\r": " "})


def render_markdown(report: Report) -> str:
    """The same content as the text report, with evidence per deliverable."""
    verdict = report.verdict
    lines = [f"# {verdict.result}: {escape(report.name)}, level {escape(verdict.level)}", ""]
    lines += [escape(verdict.reason), ""] if verdict.reason else []
    lines += [f"Run `{_code(report.run_id)}`: {escape(where(report))}.", ""]
    lines += _table("Deliverables", ("Deliverable", "Status", "Why", "Evidence"), _deliverables(report))
    lines += _table("Figures", ("Metric", "First to last", "What these are"), _figures(report))
    lines += _list("Reproduction", reproduction_lines(verdict))
    lines += _cause(verdict)
    lines += _driver_log(report)
    lines += _list("Attempts", attempt_lines(verdict))
    lines += _list("Trackers", tracker_lines(report))
    lines += _list("Not proved", verdict.limitations)
    lines += _list(
        "Findings", [f"{f.severity} {f.rule}: {f.what}. {f.why}".rstrip() for f in verdict.findings]
    )
    lines += _list("Provenance", list(_provenance(report)))
    # A fence that no line of a log can close: it would have to stand alone at the start of a line.
    return guide_form(report, "```text\n", "```\n\n") + "\n".join(lines).rstrip() + "\n"


def escape(text: str) -> str:
    """`text` as Markdown shows it literally, in one line; paired backticks stay code."""
    parts = text.split("`")
    if len(parts) % 2 == 0:
        return text.translate(SPECIAL)
    return "".join(f"`{_cell(part)}`" if at % 2 else part.translate(SPECIAL) for at, part in enumerate(parts))


def _code(text: str) -> str:
    return _plain(text).replace("`", "'")


def _cell(text: str) -> str:
    """Code in a table: only a bar would end the cell."""
    return _plain(text).replace("|", "\\|")


def _deliverables(report: Report) -> Iterator[Sequence[str]]:
    for item in report.verdict.deliverables:
        shown = "<br>".join(
            f"`{_code(evidence_text(part)).replace('|', chr(92) + '|')}`" for part in item.evidence[:2]
        )
        yield escape(item.name), f"**{item.status}**", escape(item.reason), shown


def _figures(report: Report) -> Iterator[Sequence[str]]:
    for figure in report.verdict.figures:
        yield escape(figure.metric), figure_text(figure), figure_values(figure)


def _cause(verdict: Verdict) -> list[str]:
    cause = verdict.first_cause
    if cause is None:
        return []
    at = f"`{_code(place(cause))}`" if place(cause) else ""
    parts = (f"**{cause.verdict}**", f"({escape(cause.kind)})", escape(cause.node), at)
    head = " ".join(part for part in parts if part)
    rows = [("Why", cause.why), ("Fix", cause.fix), ("Seen before", cause.source)]
    explanation = [f"- {name}: {escape(text)}" for name, text in rows if text]
    context = [line[:MAX_LINE] for line in cause.context or (cause.text,)]
    return [
        f"## {verdict.cause_title.capitalize()}",
        "",
        head,
        "",
        *(f"    {_plain(line)}" for line in context),
        "",
        *explanation,
        "",
    ]


def _driver_log(report: Report) -> list[str]:
    log = report.driver_log
    if log is None:
        return []
    head = f"`{_code(log.file)}` ({escape(log.command)}: {escape(log.ended)}):"
    return ["## Last lines of the command", "", head, "", *(f"    {_plain(line)}" for line in log.lines), ""]


def _plain(line: str) -> str:
    return line.replace("\n", " ").replace("\r", " ")


def _provenance(report: Report) -> Iterator[str]:
    yield f"jobspec {report.jobspec_version}, plan sha256 {report.plan_sha256[:16]}"
    for repo in report.repos:
        yield f"{repo.name}: {state(report, repo)} ({repo.url or repo.path})"
    for item in report.inputs:
        label = item.kind if item.kind == item.name else f"{item.kind} {item.name}"
        moves = " (not pinned)" if item.moves else ""
        yield f"{label}: {item.repo_id or item.source} {item.revision}{moves}".rstrip()
    for what, image in report.images.items():
        yield f"{what} {image}, {report.container.runtime}"


def _table(title: str, head: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    lines = [f"| {' | '.join(row)} |" for row in rows]
    if not lines:
        return []
    return [f"## {title}", "", f"| {' | '.join(head)} |", f"|{' --- |' * len(head)}", *lines, ""]


def _list(title: str, items: Sequence[str]) -> list[str]:
    return [f"## {title}", "", *(f"- {escape(item)}" for item in items), ""] if items else []
