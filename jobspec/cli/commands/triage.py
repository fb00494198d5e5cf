"""Find the first cause in logs: its class, the line in its context, and what to do. `-` reads standard input.

Folders are searched for logs; gzip is read as well. Exit code 1 when a cause was found, 0 when none was.
"""

from __future__ import annotations

import argparse
import os
import re
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from jobspec.cli import output, parser
from jobspec.finding import Finding, fail, one_line

if TYPE_CHECKING:
    from jobspec.triage import Match

LOG_SUFFIXES = (".log", ".out", ".err", ".txt", ".stdout", ".stderr", ".dmesg")
LOG_NAMES = re.compile(r"\.(?:log|out|err)[.-]\d+$|\.[oe]\d+$|^(?:stdout|stderr|dmesg)$")  # rotated; of PBS
MAX_CONTEXT_CHARS = 160


def add_arguments(into: argparse.ArgumentParser) -> None:
    into.add_argument(
        "logs", metavar="LOG", nargs="+", help="log file, folder of logs, or - for standard input"
    )
    into.add_argument("--all", action="store_true", help="print every match, not only the first specific one")
    parser.add_json(into)


def run(args: argparse.Namespace) -> int:
    problems: list[Finding] = []
    matches = scan(args.logs, problems)
    output.print_findings(problems)
    causes = [match for match in matches if match.verdict != "Note"]
    if args.json:
        output.print_json([as_json(match) for match in matches])
    elif not causes:
        print("triage knows no line of it as the cause of a failure")
    for match in () if args.json else (matches if args.all else causes[:1]):
        print(_text(match))
    return 1 if causes else 0


def scan(names: list[str], problems: list[Finding]) -> list[Match]:
    from jobspec.cli.machine_facts import is_own, look_up
    from jobspec.triage import dumps, scan_files, scan_stream
    from jobspec.triage.deciding_facts import with_recorded_facts

    if "-" in names:
        if len(names) > 1:
            raise fail(
                "triage.mixed", "standard input cannot be read beside files", fix="name `-` alone, or files"
            )
        matches = scan_stream(sys.stdin.buffer, problems=problems)
    else:
        files = list(dict.fromkeys(path for name in names for path in _logs(Path(name))))
        logs = [path for path in files if not dumps.is_recorder(path)]
        matches = scan_files([(path, str(path), "") for path in logs], problems=problems)
        matches = dumps.with_dumps(matches, dumps.read(files, problems))
    known = with_recorded_facts(matches, {})
    return [replace(match, facts=(*match.facts, *look_up(match, is_own))) for match in known]


def _logs(path: Path) -> Iterator[Path]:
    """The logs at or below `path`. Raises: JobspecError when there is no readable log."""
    if path.is_dir():
        next(
            path.iterdir(), None
        )  # raises for an unreadable folder, which the search below takes for an empty one
        logs = sorted(item for item in path.rglob("*") if item.is_file() and _is_log(item))
        if not logs:
            what = f"the folder `{path}` holds no log"
            raise fail(
                "triage.no-log", what, f"logs end in {', '.join(LOG_SUFFIXES)} or .gz", "name the file"
            )
        yield from logs
    elif path.exists():
        yield _readable(path)
    else:
        raise fail("triage.no-log", f"there is no file `{path}`", fix="name a log, a folder of logs, or -")


def _is_log(path: Path) -> bool:
    from jobspec.triage.dumps import is_dump_name

    name = path.name.removesuffix(".gz")
    return Path(name).suffix in LOG_SUFFIXES or LOG_NAMES.search(name) is not None or is_dump_name(name)


def _readable(path: Path) -> Path:
    """The path, if it can be opened. A pipe is not tried, since it opens only once. Raises: JobspecError."""
    if path.is_fifo() or (path.is_char_device() and path.samefile(os.devnull)):
        return path
    if not path.is_file() and not _terminal(path):
        fix = "name a log, a folder of logs, or - for standard input"
        raise fail("triage.no-log", f"`{path}` is a device or a socket, not a log", fix=fix)
    try:
        path.open("rb").close()
    except OSError as why:
        fix = "name a log that this user may read"
        raise fail("triage.unreadable", f"`{path}` cannot be read", why.strerror or "", fix) from why
    return path


def _terminal(path: Path) -> bool:
    """`/dev/stdin` of somebody who types."""
    if not path.is_char_device():
        return False
    with path.open("rb", buffering=0) as stream:
        return stream.isatty()


def as_json(match: Match) -> dict[str, Any]:
    return {
        "signature": match.signature,
        "class": match.kind,
        "verdict": match.verdict,
        "file": match.file,
        "line": match.line,
        "text": match.text,
        "place": match.place,
        "title": match.title,
        "why": match.why,
        "fix": match.fix,
        "generic": match.generic,
        "survived": match.survived,
        "time": match.time,
        "facts": list(match.facts),
        "context": list(match.context),
        "source": match.source,
    }


def _text(match: Match) -> str:
    head = f"{match.verdict} [{match.signature}] {match.kind}  {match.file}:{match.line}"
    facts = "; ".join(match.facts)
    why = match.why.removeprefix(f"{match.title}; ")
    rows = (("what", match.title), ("why", why), ("fact", facts), ("fix", match.fix))
    explanation = [f"  {name + ':':<5} {text}" for name, text in rows if text]
    return "\n".join(one_line(line) for line in (head, *_context(match), *explanation))


def _context(match: Match) -> Iterator[str]:
    """The lines around the match, which is marked; of a silent exception its statement as well."""
    text = match.text.strip()
    marked = text.removesuffix("`)").split(" (`", 1) if text.endswith("`)") else (text,)
    for line in match.context or (match.text,):
        bare = line.strip()
        begun = bare.endswith(":") and text.startswith(f"{bare} ")  # its message is on the next line
        mark = ">" if begun or any(part and part in line for part in marked) else "|"
        yield f"  {mark} {line.strip()[:MAX_CONTEXT_CHARS]}"
