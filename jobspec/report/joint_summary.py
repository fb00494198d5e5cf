"""The guides' short form over several runs of one validation: worst result, each level with its line."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from jobspec.report.content import Report
from jobspec.report.summary import FIELDS, coverage, overall, render_summary, sentence
from jobspec.verdict import NOT_APPLICABLE, Result

WORST_FIRST = (Result.FAIL, Result.BLOCKED, Result.NOTHING_RAN, Result.PASS)


def worst(reports: Sequence[Report]) -> Result:
    return min((report.verdict.result for report in reports), key=WORST_FIRST.index)


def render_joint_summary(reports: Sequence[Report]) -> str:
    """One form for all reports: a line that all share stands once, the others name their run."""
    labels = _labels(reports)
    parts = [_parts(render_summary(report)) for report in reports]
    passed = sum(report.verdict.result is Result.PASS for report in reports)
    lines = [
        f"Result: {overall(worst(reports))} - {passed} of {len(reports)} runs passed{_left_out(reports)}",
        "Requested coverage:",
    ]
    for label, report in zip(labels, reports, strict=True):
        lines.append(f"- {label}: {overall(report.verdict.result)} - {sentence(report)}")
    for field in FIELDS:
        rows = [part[field] for part in parts]
        shared = [row for row in rows[0] if all(row in other for other in rows)]
        own = [
            f"- {label}: {row.removeprefix('- ')}"
            for label, own_rows in zip(labels, rows, strict=True)
            for row in own_rows
            if row not in shared and row != "- none"
        ]
        own = [*(_other_sources(reports) if field == "Limitations" else ()), *own]
        lines += [f"{field}:", *(shared if not own else [row for row in shared if row != "- none"]), *own]
    return "\n".join(lines) + "\n"


def _left_out(reports: Sequence[Report]) -> str:
    """The variants that the framework blocks, counted apart from the runs."""
    items = (item for report in reports for item in report.verdict.deliverables)
    names = {item.name for item in items if item.reason.startswith(NOT_APPLICABLE)}
    return f", {len(names)} {'variant' if len(names) == 1 else 'variants'} not applicable" if names else ""


def _other_sources(reports: Sequence[Report]) -> Iterator[str]:
    """Repositories that are not the same in all runs: together these prove nothing about one state."""
    for name in dict.fromkeys(repo.name for report in reports for repo in report.repos):
        states = {repo.commit for report in reports for repo in report.repos if repo.name == name}
        if len(states) > 1:
            yield f"- the runs had different commits of `{name}`: no single one is proved at every level"


def _labels(reports: Sequence[Report]) -> list[str]:
    """Level and variants of each run; its id too where two runs have the same."""
    names = [coverage(report) for report in reports]
    return [
        f"{name}, run {report.run_id}" if names.count(name) > 1 else name
        for name, report in zip(names, reports, strict=True)
    ]


def _parts(form: str) -> dict[str, list[str]]:
    """The lines of a short form by field; the model, which stands beside its field, as one line."""
    found: dict[str, list[str]] = {field: [] for field in FIELDS}
    field = ""
    for line in form.splitlines():
        head, colon, rest = line.partition(":")
        if colon and not line.startswith("- "):
            field = head if head in FIELDS else ""
            if field and rest.strip():
                found[field].append(f"- {rest.strip()}")
        elif field:
            found[field].append(line)
    return found
