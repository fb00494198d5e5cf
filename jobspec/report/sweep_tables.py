"""A sweep's table as text, Markdown, CSV, JSON, JSON lines, JUnit and one HTML page with bars and curves."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from jobspec.finding import one_line, visible
from jobspec.report.junit import junit_case, junit_text
from jobspec.report.markdown import escape
from jobspec.report.page import render_page
from jobspec.report.pictures import draw_plot
from jobspec.report.plots import Line, Plot
from jobspec.sweeps.table import OK, SweepRow, SweepTable

REASON = 90  # characters of a reason in the text for a terminal
MAX_PLOTS = 8


@dataclass(frozen=True)
class Bar:
    """One point in a plot: the length of its bar in percent, and what stands beside it."""

    share: float
    label: str
    text: str
    status: str
    page: str


@dataclass(frozen=True)
class Bars:
    """A bar for each point, by one figure."""

    title: str
    bars: tuple[Bar, ...]


def render_sweep_table(table: SweepTable, fmt: str) -> str:
    """The table in the form `fmt`, one of `SWEEP_FORMATS`. Raises: KeyError for another form."""
    return visible(SWEEP_FORMATS[fmt](table))


def _text(table: SweepTable) -> str:
    header, rows = _cells(table, REASON)
    widths = [max(len(row[at]) for row in [header, *rows]) for at in range(len(header))]
    lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
             for row in [header, *rows]]  # fmt: skip
    lines += ["", _best(table)]
    if table.pruned:
        lines += ["", f"left out before submission ({len(table.pruned)}):"]
        lines += [f"  {_sets(row)}: {one_line(row.reason)}" for row in table.pruned]
    return "\n".join(lines) + "\n"


def _markdown(table: SweepTable) -> str:
    header, rows = _cells(table)
    lines = [f"# Sweep {escape(table.name)} {escape(table.run_id)}", ""]
    lines += [_markdown_row(header), "|" + " --- |" * len(header)]
    lines += [_markdown_row(row) for row in rows]
    lines += ["", escape(_best(table))]
    if table.pruned:
        lines += ["", "Left out before submission:", ""]
        lines += [f"- {escape(f'{_sets(row)}: {row.reason}')}" for row in table.pruned]
    return "\n".join(lines) + "\n"


def _markdown_row(cells: Sequence[str]) -> str:
    return "| " + " | ".join(map(escape, cells)) + " |"


def _names(table: SweepTable) -> list[str]:
    """The names of the keys for people: their last parts where these differ."""
    short = [key.rpartition(".")[2] for key in table.keys]
    return short if len(set(short)) == len(short) else list(table.keys)


def _cells(table: SweepTable, most: int = 0) -> tuple[list[str], list[list[str]]]:
    """Header and rows for people. A reason longer than `most` is cut; 0 shows it whole."""
    keys, metrics = table.keys, table.metrics
    score = [table.rule.text.upper()] if table.rule is not None else []
    header = ["POINT", *_names(table), "TOKENS/S", "S/STEP", "PEAK GIB", "STEPS", "STATUS", "VERDICT"]
    header += [*score, *(name.upper() for name in metrics), "REASON"]
    rows = []
    for row in table.rows:
        figures = [_figure(row.tokens_per_s), _figure(row.step_s), _figure(row.peak_gib)]
        note = one_line(row.reason)
        note = note if not most or len(note) <= most else f"{note[: most - 3]}..."
        note = f"{note} (of run {row.reused})".strip() if row.reused else note
        sets = [one_line(_value(row.sets[key])) if key in row.sets else "" for key in keys]
        more = [*([row.score] if score else []), *(row.metrics.get(name) for name in metrics)]
        cells = [*figures, str(row.steps or "-"), row.status, row.result or "-", *map(_figure, more)]
        rows.append([str(row.index), *sets, *cells, note])
    return header, rows


def _best(table: SweepTable) -> str:
    best = table.best
    if table.rule is not None:
        if best is None or best.score is None:
            return f"no point has a pass and a value of {table.rule.metric}"
        return f"best: point {best.index} ({_sets(best)}), {table.rule.text} = {best.score:.6g}"
    if best is None:
        return "no point has a pass and a measured speed"
    speed = (
        f"{best.tokens_per_s:.5g} tokens/s" if best.tokens_per_s is not None else f"{best.step_s:.4g} s/step"
    )
    return f"best: point {best.index} ({_sets(best)}), {speed}"


def _sets(row: SweepRow, names: Mapping[str, str] | None = None) -> str:
    """The settings of a point in one line; `names` are what to call their keys."""
    sets = ", ".join(f"{(names or {}).get(key, key)}={_value(value)}" for key, value in row.sets.items())
    return one_line(sets) or "no change"


def _value(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _figure(value: float | None) -> str:
    return "-" if value is None else f"{value:.4g}"


def _csv(table: SweepTable) -> str:
    stream = io.StringIO()
    columns = ["point", *table.keys, *_FIGURES]
    writer = csv.DictWriter(stream, columns, lineterminator="\n")
    writer.writeheader()
    for row in (*table.rows, *table.pruned):
        data = row.to_json()
        cells = {key: _value(value) for key, value in row.sets.items()}
        point = row.index if row.index >= 0 else ""
        writer.writerow({"point": point, **cells, **{name: data[name] for name in _FIGURES}})
    return stream.getvalue()


_FIGURES = ("status", "tokens_per_s", "step_s", "peak_gib", "steps", "result", "reason", "reused")


def _jsonl(table: SweepTable) -> str:
    return "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in _rows(table))


def _json(table: SweepTable) -> str:
    best = table.best
    data = {
        "version": 1,
        "run_id": table.run_id,
        "name": table.name,
        "exit_code": table.exit_code,
        "best": best.index if best is not None else None,
        "rule": table.rule.text if table.rule is not None else None,
        "points": [row.to_json() for row in table.rows],
        "pruned": [{"sets": dict(row.sets), "reason": row.reason} for row in table.pruned],
    }
    return json.dumps(data, indent=2, ensure_ascii=False) + "\n"


def _rows(table: SweepTable) -> list[dict[str, Any]]:
    """Every point; points that were left out come last and have no number."""
    return [{**row.to_json(), "point": row.index if row.index >= 0 else None}
            for row in (*table.rows, *table.pruned)]  # fmt: skip


def bars(table: SweepTable) -> tuple[Bars, ...]:
    """Bars by the rule for the best point, by speed, and for each metric that points have."""
    by_speed = any(row.tokens_per_s is not None for row in table.rows)
    speed, unit = ("tokens/s", "tokens_per_s") if by_speed else ("s/step", "step_s")
    figures = [(speed, [getattr(row, unit) for row in table.rows])]
    if table.rule is not None:
        figures.insert(0, (table.rule.text, [row.score for row in table.rows]))
    figures += [(name, [row.metrics.get(name) for row in table.rows]) for name in table.metrics]
    measured = [(title, values) for title, values in figures if any(value is not None for value in values)]
    return tuple(_bars(table, title, values) for title, values in measured[:MAX_PLOTS])


def _bars(table: SweepTable, title: str, values: Sequence[float | None]) -> Bars:
    most = max((abs(value) for value in values if value is not None), default=0.0) or 1.0
    return Bars(
        title,
        tuple(
            Bar(
                share=round(100 * max(0.0, value or 0.0) / most, 1),
                label=_label(table, row),
                text=" ".join(
                    ("" if value is None else f"{value:.4g}", "" if row.status == OK else row.status)
                ).strip(),
                status=row.status,
                page=row.page,
            )
            for row, value in zip(table.rows, values, strict=True)
        ),
    )


def _label(table: SweepTable, row: SweepRow) -> str:
    return f"{row.index}: {_sets(row, dict(zip(table.keys, _names(table), strict=True)))}"


def _html(table: SweepTable) -> str:
    header, rows = _filled(*_cells(table))
    pages = {str(row.index): row.page for row in table.rows}
    drawn = curves(table)
    return render_page(
        "sweep.html.j2", scripted=bool(drawn), table=table, header=header, rows=rows, bars=bars(table),
        curves=[draw_plot(plot) for plot in drawn], best=_best(table), sets=_sets, pages=pages,
    )  # fmt: skip


def _filled(header: list[str], rows: list[list[str]]) -> tuple[list[str], list[list[str]]]:
    """Without the columns in which no point has anything."""
    kept = [at for at in range(len(header)) if any(row[at] not in ("", "-") for row in rows)]
    return [header[at] for at in kept], [[row[at] for at in kept] for row in rows]


def curves(table: SweepTable) -> list[Plot]:
    """A plot for each metric with a line for each point, in the same colour in all."""
    metrics = dict.fromkeys(name for row in table.rows for name, points in row.curves.items() if points)
    return [
        Plot(name, tuple(Line(_label(table, row), tuple(row.curves.get(name, ()))) for row in table.rows))
        for name in list(metrics)[:MAX_PLOTS]
    ]


def _junit(table: SweepTable) -> str:
    """A test case for each point: FAIL and OOM fail, BLOCKED is an error, what has not run is skipped."""
    tags = {"FAIL": "failure", "OOM": "failure", "BLOCKED": "error", "OK": ""}
    package = f"jobspec.sweep.{table.name}"
    cases = []
    for row in table.rows:
        tag = tags.get(row.status, "skipped")
        message = f"{row.status} {row.reason}".strip() if tag else ""
        cases.append(junit_case(package, f"point {row.index}: {_sets(row)}", row.seconds, tag, message))
    return junit_text(
        name=f"{table.name} {table.run_id}", package=package, host="", start=table.start, cases=cases,
        seconds=sum(row.seconds for row in table.rows), properties=[("run", table.run_id)], out=_text(table),
    )  # fmt: skip


SWEEP_FILES = {
    "text": "report.txt", "md": "report.md", "json": "report.json", "html": "report.html",
    "csv": "sweep.csv", "jsonl": "sweep.jsonl", "junit": "junit.xml",
}  # fmt: skip
SWEEP_FORMATS: dict[str, Callable[[SweepTable], str]] = {
    "text": _text, "md": _markdown, "csv": _csv, "json": _json, "jsonl": _jsonl, "html": _html,
    "junit": _junit,
}  # fmt: skip
