"""Find the first cause in logs: its class, the line, and what to do. `-` reads standard input.

Folders are searched for logs. Exit code 1 when a cause was found, 0 when none was.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from jobspec.cli import output, parser
from jobspec.finding import fail

if TYPE_CHECKING:
    from jobspec.triage import Match

LOG_SUFFIXES = (".log", ".out", ".err", ".txt")


def add_arguments(into: argparse.ArgumentParser) -> None:
    into.add_argument(
        "logs", metavar="LOG", nargs="+", help="log file, folder of logs, or - for standard input"
    )
    into.add_argument("--all", action="store_true", help="every match, not only the first specific one")
    parser.add_json(into)


def run(args: argparse.Namespace) -> int:
    matches = _scan(args.logs)
    causes = [match for match in matches if match.verdict != "Note"]
    if args.json:
        output.print_json([_as_json(match) for match in matches])
    elif not causes:
        print("no known cause found")
    for match in () if args.json else (causes if args.all else causes[:1]):
        print(_text(match))
    return 1 if causes else 0


def _scan(names: list[str]) -> list[Match]:
    from jobspec.triage import scan_files, scan_lines

    if names == ["-"]:
        return scan_lines(sys.stdin, "<stdin>")
    files = [path for name in names for path in _logs(Path(name))]
    return scan_files([(path, str(path), "") for path in files])


def _logs(path: Path) -> Iterator[Path]:
    if path.is_dir():
        yield from sorted(item for item in path.rglob("*") if item.is_file() and item.suffix in LOG_SUFFIXES)
    elif path.is_file():
        yield path
    else:
        raise fail("triage.no-log", f"there is no file `{path}`", fix="name a log, a folder of logs, or -")


def _as_json(match: Match) -> dict[str, Any]:
    return {
        "signature": match.signature,
        "class": match.kind,
        "verdict": match.verdict,
        "file": match.file,
        "line": match.line,
        "text": match.text,
        "title": match.title,
        "why": match.why,
        "fix": match.fix,
        "generic": match.generic,
    }


def _text(match: Match) -> str:
    head = f"{match.verdict} [{match.signature}] {match.kind}  {match.file}:{match.line}"
    rows = (("what", match.title), ("line", match.text.strip()), ("why", match.why), ("fix", match.fix))
    return "\n".join([head, *(f"  {name + ':':<5} {text}" for name, text in rows if text)])
