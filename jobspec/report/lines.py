"""Lines that several forms of the report share: a figure, a place, a piece of evidence, an attempt.

Each is plain text for one line; each form escapes and decorates it in its own way.
"""

from __future__ import annotations

import math

from jobspec.report.content import Report
from jobspec.units import duration
from jobspec.verdict import (
    FIGURE_SHARE,
    AttemptVerdict,
    Beside,
    Cause,
    EvidenceItem,
    Figure,
    Verdict,
)

# verl and SkyRL divide by the number of GPUs. Source: verl `metric_utils.py`, `compute_throughout_metrics`.
PER_GPU = frozenset({"perf/throughput", "trainer/tokens_per_second_per_gpu"})
MAX_LINE = 200  # characters of a log line shown; the report names its file and line


def where(report: Report) -> str:
    """Framework, cluster, size and duration in one line; of a run of others the size that was asked for."""
    if report.foreign:
        return "; ".join(filter(None, (f"judged as {report.framework}", _asked_for(report))))
    gpus = _gpus(report.nodes_planned, report.gpus_per_node)
    kinds = [f"{g.name}: {g.nodes} with {_gpus(g.nodes, g.gpus_per_node)}" for g in report.groups]
    nodes = counted(report.nodes_planned, "node") + (f" ({', '.join(kinds)})" if kinds else f", {gpus}")
    parts = [
        report.framework,
        f"on {report.cluster}" if report.cluster else "",
        nodes,
        duration(report.seconds) if report.seconds else "",
    ]
    return ", ".join(part for part in parts if part)


def _asked_for(report: Report) -> str:
    """What settings or a launcher's command ask for, which need not be what was there."""
    nodes = counted(report.nodes_planned, "node") if report.nodes_planned else ""
    each = " each" if report.nodes_planned > 1 else "" if nodes else " a node"
    gpus = f"{counted(report.gpus_per_node, 'GPU')}{each}" if report.gpus_per_node else ""
    if report.launched and not gpus:
        return f"a launch in the files asks for {report.launched}"
    parts = ", ".join(filter(None, (nodes, gpus)))
    return f"the files ask for {parts}" if parts else ""


def _gpus(nodes: int, each: int) -> str:
    return counted(each, "GPU") + (" each" if nodes > 1 else "") if each else "no GPU"


def counted(number: int, word: str) -> str:
    """`1 step`, `2 steps`."""
    return f"{number} {word}{'' if number == 1 else 's'}"


def number(value: float) -> str:
    """A figure for people: three significant digits, thousands in full; `nan` and `inf` as they are."""
    if math.isfinite(value) and value == int(value) and abs(value) < 1e6:
        return str(int(value))
    return f"{value:.0f}" if 1000 <= abs(value) < 1e7 else f"{value:.3g}"


def place(item: EvidenceItem | Cause) -> str:
    """`file:line` of a piece of evidence or of a cause; `file` alone without a line."""
    return f"{item.file}:{item.line}" if item.line else item.file


def evidence_text(item: EvidenceItem) -> str:
    """One piece of evidence in one line."""
    value = "" if item.value is None or item.metric in item.text else f"{item.metric} = {number(item.value)}"
    return "  ".join(part for part in (place(item), value, item.text[:MAX_LINE]) if part)


def figure_name(figure: Figure) -> str:
    """`loss`, and the metric where it has another name: `loss (actor/pg_loss)`."""
    same = figure.name.replace(" ", "_") == figure.metric.replace(" ", "_")
    each = " a GPU" if figure.metric in PER_GPU else ""
    return figure.name if same else f"{figure.name}{each} ({figure.metric})"


def figure_text(figure: Figure) -> str:
    """`0.15 -> 0.84`; one number where there is only one value."""
    ends = [figure.first] if figure.steps == 1 else [figure.first, figure.last]
    return " -> ".join(map(number, ends)) + (f" {figure.unit}" if figure.unit else "")


def figure_values(figure: Figure) -> str:
    """What the two numbers of a figure are: its first and last value, or means over its ends."""
    width = max(1, figure.steps // FIGURE_SHARE)
    if figure.steps == 1:
        return "one finite value"
    if width == 1:
        return f"first and last of {figure.steps} finite values"
    return f"means of the first and the last {width} of {figure.steps} finite values"


def attempt_text(attempt: AttemptVerdict) -> str:
    """How one attempt ended, in one line."""
    code = "" if attempt.exit_code is None else f", exit code {attempt.exit_code}"
    steps = "" if attempt.steps is None else f", steps {attempt.steps[0]} to {attempt.steps[1]}"
    reason = f": {attempt.reason}" if attempt.reason else ""
    return f"{attempt.number}. {attempt.outcome}{code}{steps}{reason}"


def attempt_lines(verdict: Verdict) -> list[str]:
    """How each attempt ended; empty for a single attempt, whose end the verdict itself states."""
    return [attempt_text(item) for item in verdict.attempts] if len(verdict.attempts) > 1 else []


def reproduction_lines(verdict: Verdict) -> list[str]:
    """The run beside the one that it repeats; empty for a run that repeats none."""
    found = verdict.reproduction
    if found is None:
        return []
    return [f"of run {found.run_id}: {found.problem or found.folder}", *map(_beside_text, found.rows)]


def tracker_lines(report: Report) -> list[str]:
    """How to send or look at what each tracker wrote into the run's folder; the pages of what it has sent."""
    return [
        f"{item.tracker}: {item.url} [{item.folder}]" if item.url else f"{item.tracker}: `{item.command}`"
        for item in report.trackers
    ]


def _beside_text(row: Beside) -> str:
    if not (row.first or row.now):
        return f"{row.word}: {row.name}"
    values = f"{row.first or 'not recorded'} -> {row.now or 'not recorded'}"
    return f"{row.word}: {row.name}: {values}" + (f"; {row.reason}" if row.reason else "")
