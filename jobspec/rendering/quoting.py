"""How a value gets into a script: quoting for the shell and for `#SBATCH` lines.

The environment's `finalize` hook sends every `{{ value }}` of a template through `quote`, so that no template
can forget it. Each other filter makes text for one place of the grammar, which then passes as it is.
"""

from __future__ import annotations

import functools
import re
import shlex
from collections.abc import Iterable
from importlib import resources

from jinja2 import BaseLoader, Environment, StrictUndefined, TemplateNotFound


class Quoted(str):
    """Text that a filter has made safe for its place; `finalize` lets it pass."""

    __slots__ = ()


def quote(value: object) -> Quoted:
    """One shell word. Raises: TypeError for anything but text and numbers, ValueError for NUL."""
    if isinstance(value, Quoted):
        return value
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        if isinstance(value, StrictUndefined):
            str(value)  # raises jinja2's own error, which names the variable
        raise TypeError(f"a template printed {type(value).__name__}, which is no shell word")
    return _word(str(value))


@functools.lru_cache(maxsize=4096)
def _word(text: str) -> Quoted:
    if "\0" in text:
        raise ValueError("a NUL character cannot be passed to a command")
    return Quoted(shlex.quote(text))


def words(values: Iterable[object]) -> Quoted:
    """Several shell words."""
    return Quoted(" ".join(quote(value) for value in values))


@functools.lru_cache(maxsize=1024)
def directive(value: object) -> Quoted:
    r"""One word of an `#SBATCH` line.

    sbatch splits the line itself: blanks separate outside quotes only, a backslash escapes inside either
    kind of quote, `#` outside quotes ends the line, and `hetjob` and `packjob` are blanked anywhere.
    Raises: ValueError for a line break or NUL, which no quoting can express.
    Source: sbatch(1) and Slurm 22.05.8; tests/rendering/test_quoting.py asks the real sbatch.
    """
    text = str(value)
    if re.search(r"[\0\n\r]", text):
        raise ValueError(f"{text!r} has a line break and cannot stand in an #SBATCH line")
    if re.fullmatch(r"[A-Za-z0-9_./:=,%@+-]+", text) and not re.search("hetjob|packjob", text, re.IGNORECASE):
        return Quoted(text)
    escaped = re.sub(r'([\\"])', r"\\\1", text)
    return Quoted('"' + re.sub(r"(?i)(het|pack)(?=job)", lambda match: match[0] + "\\", escaped) + '"')


def own_folders(value: str) -> Quoted:
    """One shell word in which `${JOBSPEC_METRICS_DIR}` and its like are expanded, as the agent does."""
    parts = re.split(r"(\$\{JOBSPEC_[A-Z_]+_DIR\})", value)
    return Quoted(
        "".join(f'"{part}"' if index % 2 else quote(part) for index, part in enumerate(parts) if part) or "''"
    )


def comment(value: object) -> Quoted:
    """Text inside a `#` comment: one line of it."""
    return Quoted(re.sub(r"[\x00-\x1f\x7f-\x9f\u2028\u2029]+", " ", str(value)))


def verbatim(lines: Iterable[str]) -> Quoted:
    """Shell code as the site profile's author wrote it."""
    return Quoted("\n".join(lines))


class _PackagedTemplates(BaseLoader):
    """Templates of the `jobspec.templates` package; works from wheels and editable installs alike."""

    def get_source(self, environment: Environment, template: str) -> tuple[str, None, None]:
        source = resources.files("jobspec.templates") / template
        if not source.is_file():
            raise TemplateNotFound(template)
        return source.read_text(encoding="utf-8"), None, None


@functools.cache
def environment() -> Environment:
    made = Environment(
        loader=_PackagedTemplates(),
        undefined=StrictUndefined,
        finalize=quote,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        auto_reload=False,
        autoescape=False,
    )
    made.filters.update(words=words, directive=directive, comment=comment, verbatim=verbatim)
    return made
