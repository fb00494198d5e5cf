"""Compare runs: the settings that differ, the time of each phase, and the metrics with their curves.

The curves of one metric have one scale and the same steps. `--html` writes a page that has those of all runs
in one plot.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from jobspec.cli import output, parser
from jobspec.finding import fail, visible
from jobspec.runs.store import open_store
from jobspec.units import duration, figure
from jobspec.words import did_you_mean

if TYPE_CHECKING:
    from jobspec.judging.compare import Comparison


def add_arguments(into: argparse.ArgumentParser) -> None:
    into.add_argument("runs_wanted", metavar="RUN", nargs="+", help="two or more runs")
    into.add_argument("--metric", metavar="NAME", action="append", default=[], help="only these metrics")
    into.add_argument("--html", metavar="FILE", help="also write a page with all runs' curves in one plot")
    parser.add_runs(into)
    parser.add_json(into)


def run(args: argparse.Namespace) -> int:
    if len(args.runs_wanted) < 2:
        raise fail("usage.arguments", "one run cannot be compared", fix="name two or more runs")
    from jobspec.judging.compare import compare, read_side, sparks

    store = open_store(args.runs)
    comparison = _only(compare([read_side(store.find(ref)) for ref in args.runs_wanted]), args.metric)
    if args.html:
        _write_page(comparison, Path(args.html))
    if args.json:
        output.print_json(comparison.to_json())
        return 0
    output.print_table(("", *comparison.runs), [("result", *comparison.results)])
    if comparison.settings:
        print()
        output.print_table(
            ("SETTING", *comparison.runs), [(name, *map(_short, row)) for name, row in comparison.settings]
        )
    else:
        print("\nno setting differs")
    print()
    phases = [
        (name, *(duration(value) if value is not None else "-" for value in row))
        for name, row in comparison.phases
    ]
    output.print_table(("PHASE", *comparison.runs), phases)
    metrics = [
        (name, *(f"{_ends(row)} {spark}".rstrip() for row, spark in zip(rows, sparks(curves), strict=True)))
        for (name, rows), (_, curves) in zip(comparison.metrics, comparison.curves, strict=True)
    ]
    print()
    output.print_table(("METRIC", *comparison.runs), metrics)
    if args.html:
        print(f"\npage: {visible(args.html)}")
    return 0


def _write_page(comparison: Comparison, file: Path) -> None:
    """Raises: JobspecError where the file cannot be written."""
    from jobspec.report.compare_page import render_comparison
    from jobspec.runtime.base.safe_write import write_text

    try:
        write_text(file, visible(render_comparison(comparison)))
    except OSError as problem:
        why = problem.strerror or str(problem)
        fix = "give a file in a folder that is there and that you may write"
        raise fail(
            "usage.arguments", "the page cannot be written", why, fix, file=f"--html {file}"
        ) from problem


def _only(comparison: Comparison, names: Sequence[str]) -> Comparison:
    """The comparison with only these metrics. Raises: JobspecError for a name that no run has logged."""
    known = [name for name, _ in comparison.metrics]
    for name in names:
        if name not in known:
            why = f"logged: {', '.join(known)}" if known else "no metric was logged"
            fix = did_you_mean(name, known) or "leave `--metric` out to see all"
            raise fail("usage.metric", f"no run has logged `{name}`", why, fix, file=f"--metric {name}")
    return replace(
        comparison,
        metrics=tuple(row for row in comparison.metrics if not names or row[0] in names),
        curves=tuple(row for row in comparison.curves if not names or row[0] in names),
    )


def _ends(row: Mapping[str, float] | None) -> str:
    if row is None:
        return "-"
    return f"{figure(row['first'])} -> {figure(row['last'])} (max {figure(row['max'])})"


def _short(text: str) -> str:
    """One cell of the table: a script's line breaks as JSON writes them."""
    text = text.replace("\n", "\\n")
    return text if len(text) <= 40 else f"{text[:37]}..."
