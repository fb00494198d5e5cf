"""The report as one HTML file: no script, no outside asset, every value escaped by the template."""

from __future__ import annotations

from datetime import UTC, datetime
from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING

from jobspec.report import pictures
from jobspec.report.content import Report
from jobspec.report.lines import attempt_text, evidence_text, number, where
from jobspec.report.summary import guide_form, state
from jobspec.units import is_date

if TYPE_CHECKING:
    from jinja2 import Template
    from markupsafe import Markup

TEMPLATE = "report.html.j2"


def render_html(report: Report) -> str:
    """The report as an HTML page that can be mailed, archived and printed."""
    return _template().render(
        report=report,
        verdict=report.verdict,
        where=where(report),
        guide_form=guide_form(report, after=""),
        curves=[pictures.draw_curve(curve) for curve in report.curves],
        states=[(repo, state(report, repo)) for repo in report.repos],
        time_line=pictures.draw_time_line(report),
        size=pictures,
    )


@cache
def _template() -> Template:
    from jinja2 import Environment, StrictUndefined  # slow to import, and a text report needs none

    env = Environment(autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    env.filters.update(
        attempt=attempt_text,
        bytes=_bytes,
        code=_code,
        css=_css,
        evidence=evidence_text,
        number=number,
        when=_when,
    )
    return env.from_string(files("jobspec.templates").joinpath(TEMPLATE).read_text("utf-8"))


def _code(text: str) -> Markup:
    """Escaped text; a part in paired backticks becomes code."""
    from markupsafe import Markup, escape

    parts = text.split("`")
    if len(parts) % 2 == 0:
        return escape(text)
    code = Markup("<code>{}</code>")
    return Markup("").join(code.format(part) if at % 2 else escape(part) for at, part in enumerate(parts))


def _css(text: str) -> str:
    """A status or outcome as a CSS class name."""
    return "".join(char if char.isalnum() else "-" for char in text.lower())


def _when(time: float) -> str:
    if not is_date(time):
        return "unknown"
    return datetime.fromtimestamp(time, UTC).strftime("%Y-%m-%d %H:%M:%S UTC") if time else ""


def _bytes(count: int) -> str:
    size = float(count)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if size < 1024:
            return f"{size:.3g} {unit}"
        size /= 1024
    return f"{size:.3g} TiB"
