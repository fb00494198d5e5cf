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
    """Print columns as wide as their content, without a frame: people and awk can read them."""
    stream = stream or sys.stdout
    table = [[one_line(cell) for cell in row] for row in (header, *rows)]
    widths = [max(len(row[column]) for row in table) for column in range(len(header))]
    for number, row in enumerate(table):
        line = "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        print(f"{_BOLD}{line}{_RESET}" if number == 0 and colored(stream) else line, file=stream)


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
