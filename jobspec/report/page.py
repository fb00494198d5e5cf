"""What every HTML page shares: the layout, the style, and the one script that draws plots, all in the page.

A page loads nothing. Its policy lets it run exactly this script, by its hash, and only where there are plots.
"""

from __future__ import annotations

import base64
import hashlib
from datetime import UTC, datetime
from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING, Any

from jobspec.report import pictures
from jobspec.report.lines import attempt_text, evidence_text, number
from jobspec.report.plots import in_words, plot_data
from jobspec.units import duration, is_date

if TYPE_CHECKING:
    from jinja2 import Environment
    from markupsafe import Markup


def render_page(template: str, scripted: bool, **values: Any) -> str:
    """A page from `templates/TEMPLATE`; `scripted` says that it has plots."""
    return environment().get_template(template).render(scripted=scripted, size=pictures, **values)


@cache
def environment() -> Environment:
    from jinja2 import Environment, FunctionLoader, StrictUndefined  # slow to import, and text needs none

    env = Environment(
        loader=FunctionLoader(_read),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    env.filters.update(
        attempt=attempt_text, bytes=_bytes, code=_code, css=_css, data=_data, duration=duration,
        evidence=evidence_text, number=number, when=_when, words=in_words,
    )  # fmt: skip
    env.globals.update(style=_style, script=_script, script_hash=_script_hash)
    return env


def _read(name: str) -> str:
    return files("jobspec.templates").joinpath(name).read_text("utf-8")


def _style(scripted: bool) -> Markup:
    from markupsafe import Markup

    return Markup(_read("assets/page.css") + (_read("assets/uPlot.min.css") if scripted else ""))


@cache
def _script() -> Markup:
    """uPlot below its licence, which every copy carries, then our own few lines."""
    from markupsafe import Markup

    names = "uPlot.LICENSE", "uPlot.iife.min.js", "curves.js"
    licence, library, own = (_read(f"assets/{name}") for name in names)
    return Markup(f"/*\n{licence}\n*/\n{library}\n{own}")


@cache
def _script_hash() -> str:
    return "sha256-" + base64.b64encode(hashlib.sha256(_script().encode()).digest()).decode()


def _data(plot: Any) -> Markup:
    from markupsafe import Markup

    return Markup(plot_data(plot))


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
