"""The printing of all commands: findings, tables, JSON and sizes."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, TextIO

from jobspec.finding import Finding, one_line, visible

_RED, _YELLOW, _BOLD, _RESET = "\x1b[31m", "\x1b[33m", "\x1b[1m", "\x1b[0m"


def version() -> str:
    """The installed version, or `unknown` when run from a tree that was never installed."""
    from importlib.metadata import PackageNotFoundError
    from importlib.metadata import version as installed

    try:
        return installed("jobspec-rl")
    except PackageNotFoundError:
        return "unknown"


def colored(stream: TextIO) -> bool:
    """Colour only on a terminal that shows it, and never against NO_COLOR (no-color.org)."""
    return stream.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


def print_findings(findings: Iterable[Finding], stream: TextIO | None = None) -> None:
    """Print findings on stderr, errors last so that they stay in sight."""
    stream = stream or sys.stderr
    for finding in sorted(findings, key=lambda item: item.is_error):
        text = finding.text()
        if colored(stream):
            head, _, rest = text.partition("\n")
            color = _RED if finding.is_error else _YELLOW
            text = f"{_BOLD}{color}{head}{_RESET}" + (f"\n{rest}" if rest else "")
        print(text, file=stream)


def print_json(data: Any) -> None:
    print(visible(json.dumps(data, indent=2, ensure_ascii=False, default=str)))


def print_table(header: Sequence[str], rows: Sequence[Sequence[str]], stream: TextIO | None = None) -> None:
    """Print columns as wide as their content, without a frame: people and awk can read them.

    On a terminal the columns fit it: a long text goes on in the line below, but not in the first column.
    """
    stream = stream or sys.stdout
    table = [
        row if "".join(row).isprintable() else [one_line(cell) for cell in row] for row in (header, *rows)
    ]
    if stream.isatty():
        _print_fitted(table, stream)
        return
    widths = [max(map(len, column)) for column in zip(*table, strict=True)]
    print("\n".join("  ".join(map(str.ljust, row, widths)).rstrip() for row in table), file=stream)


def _print_fitted(table: Sequence[Sequence[str]], stream: TextIO) -> None:
    from rich.console import Console  # a tenth of a second: only a terminal pays
    from rich.table import Table
    from rich.text import Text

    shown = Table(
        box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold" if colored(stream) else ""
    )
    for at, name in enumerate(table[0]):
        shown.add_column(Text(name), no_wrap=at == 0, overflow="fold")
    for row in table[1:]:
        shown.add_row(*(Text(cell) for cell in row))
    Console(file=stream, no_color=not colored(stream), highlight=False).print(shown)


def print_mapping(pairs: Mapping[str, str]) -> None:
    width = max((len(key) for key in pairs), default=0)
    for key, value in pairs.items():
        print(f"{one_line(key).ljust(width)}  {one_line(value)}")


def size(count: float) -> str:
    """A number of bytes with a binary unit.

    >>> size(1536)
    '1.5 KiB'
    """
    for unit in ("B", "KiB", "MiB", "GiB"):
        if count < 1024:
            return f"{count:.0f} {unit}" if unit == "B" else f"{count:.1f} {unit}"
        count /= 1024
    return f"{count:.1f} TiB"
