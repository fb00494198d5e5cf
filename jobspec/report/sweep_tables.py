"""A sweep's table as text, Markdown, CSV, JSON, JSON lines and one HTML page with a plot."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING, Any

from jobspec.finding import one_line, visible
from jobspec.sweeps.table import OK, SweepRow, SweepTable

if TYPE_CHECKING:
    from jinja2 import Template

WIDTH, BAR, LABEL = 860, 22, 300  # of the plot, in SVG units
REASON = 90  # characters of a reason in a table


@dataclass(frozen=True)
class PlotBar:
    """One point in the plot: the length of its bar, and what stands beside it."""

    y: int
    width: float
    label: str
    text: str
    status: str


def render_sweep_table(table: SweepTable, fmt: str) -> str:
    """The table in the form `fmt`, one of `SWEEP_FORMATS`. Raises: KeyError for another form."""
    return visible(SWEEP_FORMATS[fmt](table))


def _text(table: SweepTable) -> str:
    header, rows = _cells(table)
    widths = [max(len(row[at]) for row in [header, *rows]) for at in range(len(header))]
    lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
             for row in [header, *rows]]  # fmt: skip
    lines += ["", _best(table)]
    if table.pruned:
        lines += ["", f"left out before submission ({len(table.pruned)}):"]
        lines += [f"  {_sets(row)}: {row.reason}" for row in table.pruned]
    return "\n".join(lines) + "\n"


def _markdown(table: SweepTable) -> str:
    header, rows = _cells(table)
    lines = [f"# Sweep {table.name} {table.run_id}", "", _markdown_row(header), "|" + " --- |" * len(header)]
    lines += [_markdown_row(row) for row in rows]
    lines += ["", _best(table)]
    if table.pruned:
        lines += ["", "Left out before submission:", ""]
        lines += [f"- {_sets(row)}: {row.reason}" for row in table.pruned]
    return "\n".join(lines) + "\n"


def _markdown_row(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


def _cells(table: SweepTable) -> tuple[list[str], list[list[str]]]:
    """Header and rows for people. A key is shown by its last part where the last parts differ."""
    keys = table.keys
    short = [key.rpartition(".")[2] for key in keys]
    names = short if len(set(short)) == len(short) else list(keys)
    header = ["POINT", *names, "TOKENS/S", "S/STEP", "PEAK GIB", "STEPS", "STATUS", "REASON"]
    rows = []
    for row in table.rows:
        figures = [_figure(row.tokens_per_s), _figure(row.step_s), _figure(row.peak_gib)]
        note = one_line(row.reason)
        note = note if len(note) <= REASON else f"{note[: REASON - 3]}..."
        note = f"{note} (of run {row.reused})".strip() if row.reused else note
        sets = [_value(row.sets[key]) if key in row.sets else "" for key in keys]
        rows.append([str(row.index), *sets, *figures, str(row.steps or "-"), row.status, note])
    return header, rows


def _best(table: SweepTable) -> str:
    best = table.best
    if best is None:
        return "no point has a pass and a measured speed"
    speed = (
        f"{best.tokens_per_s:.5g} tokens/s" if best.tokens_per_s is not None else f"{best.step_s:.4g} s/step"
    )
    return f"best: point {best.index} ({_sets(best)}), {speed}"


def _sets(row: SweepRow) -> str:
    return ", ".join(f"{key}={_value(value)}" for key, value in row.sets.items()) or "no change"


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
        "points": [row.to_json() for row in table.rows],
        "pruned": [{"sets": dict(row.sets), "reason": row.reason} for row in table.pruned],
    }
    return json.dumps(data, indent=2, ensure_ascii=False) + "\n"


def _rows(table: SweepTable) -> list[dict[str, Any]]:
    """Every point; points that were left out come last and have no number."""
    return [{**row.to_json(), "point": row.index if row.index >= 0 else None}
            for row in (*table.rows, *table.pruned)]  # fmt: skip


def plot(table: SweepTable) -> tuple[PlotBar, ...]:
    """A bar for each point, by tokens per second; by seconds of a step where no point has those."""
    by_speed = any(row.tokens_per_s is not None for row in table.rows)
    sizes = [(row.tokens_per_s if by_speed else row.step_s) or 0.0 for row in table.rows]
    scale = (WIDTH - LABEL - 160) / (max(sizes, default=0.0) or 1.0)
    unit = "tokens/s" if by_speed else "s/step"
    return tuple(
        PlotBar(
            y=at * BAR,
            width=round(size * scale, 1),
            label=f"{row.index}: {', '.join(_value(value) for value in row.sets.values())}",
            text=(f"{size:.4g} {unit}" if size else "") + ("" if row.status == OK else f" {row.status}"),
            status=row.status,
        )
        for at, (row, size) in enumerate(zip(table.rows, sizes, strict=True))
    )


def _html(table: SweepTable) -> str:
    header, rows = _cells(table)
    bars = plot(table)
    return _template().render(
        table=table, header=header, rows=rows, bars=bars, best=_best(table), sets=_sets,
        width=WIDTH, label=LABEL, bar=BAR, height=len(bars) * BAR,
    )  # fmt: skip


@cache
def _template() -> Template:
    from jinja2 import Environment, StrictUndefined  # slow to import, and a text report needs none

    env = Environment(autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    return env.from_string(files("jobspec.templates").joinpath("sweep.html.j2").read_text("utf-8"))


SWEEP_FILES = {
    "text": "report.txt", "md": "report.md", "json": "report.json", "html": "report.html",
    "csv": "sweep.csv", "jsonl": "sweep.jsonl",
}  # fmt: skip
SWEEP_FORMATS: dict[str, Callable[[SweepTable], str]] = {
    "text": _text, "md": _markdown, "csv": _csv, "json": _json, "jsonl": _jsonl, "html": _html,
}  # fmt: skip
