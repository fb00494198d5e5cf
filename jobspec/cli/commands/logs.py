"""Print what a run has written: by default the driver's log of the newest attempt, else the job's.

`-f` follows until the job has ended, and bears a scheduler that is away for ten minutes; `--list` names all
logs.
"""

from __future__ import annotations

import argparse
import contextlib
import re
import sys
import time
from codecs import getincrementaldecoder
from pathlib import Path
from typing import BinaryIO

from jobspec import launchers
from jobspec.cli import output, parser
from jobspec.cli.live import observe
from jobspec.cli.live.follow import Asker
from jobspec.cli.live.metrics import ProgressReader
from jobspec.cli.live.screen import PLAIN_PROGRESS_S, shown
from jobspec.finding import fail, visible
from jobspec.runs.paths import RunPaths
from jobspec.runs.records import read_launch, read_scheduler
from jobspec.runs.store import open_store
from jobspec.runtime.base.run_files import UnfitFileError, open_file
from jobspec.words import did_you_mean

POLL_S = 0.5
PIECE_BYTES = 1024 * 1024
COLOUR = re.compile(r"(\x1b\[[0-9;:]*m)")  # all that a log may ask of a terminal


def add_arguments(into: argparse.ArgumentParser) -> None:
    parser.add_run(into)
    into.add_argument("-f", "--follow", action="store_true", help="print new lines until the job has ended")
    into.add_argument(
        "-n", "--lines", type=parser.whole_number(0), metavar="N", help="only the last N lines of each log"
    )
    into.add_argument("--node", metavar="NODE", default="", help="logs of one node")
    into.add_argument(
        "--name", metavar="NAME", default="", help="logs of one name: agent, ray, or a command's"
    )
    into.add_argument("--list", action="store_true", help="name the logs and their sizes")
    parser.add_json(into)


def run(args: argparse.Namespace) -> int:
    run_paths = open_store(args.runs).find(args.run)
    launch = read_launch(run_paths)
    if launch is not None:
        launchers.sync(launch)
    if args.list or args.json:
        return _list(run_paths, args.json)
    printer = _Printer(run_paths)
    files = observe.log_files(run_paths, args.node, args.name)
    if not files and not args.follow:
        raise _nothing(run_paths, args)
    printer.print_new(files, args.lines)
    steps = _Steps(run_paths)
    steps.print_new()
    if args.follow and launch is not None and read_scheduler(run_paths) is None:
        asker = Asker(launch)
        while not (status := asker.ask()).state.final:
            time.sleep(POLL_S)
            asker.sync()
            printer.print_new(observe.log_files(run_paths, args.node, args.name))
            steps.print_new()
        launchers.sync(launch)
        launchers.record_final(run_paths, status)
    files = observe.log_files(run_paths, args.node, args.name)
    if not files:  # the run has ended without a log of that name
        raise _nothing(run_paths, args)
    printer.print_new(files)
    return 0


class _Steps:
    """Says on standard error how far the run is, at most every few seconds: the logs stay what they are."""

    def __init__(self, run: RunPaths) -> None:
        self._reader = ProgressReader(run)
        self._said: tuple[str, str] = ("", "")
        self._next = 0.0

    def print_new(self) -> None:
        now = time.monotonic()
        if now < self._next:
            return
        self._next = now + PLAIN_PROGRESS_S
        progress = self._reader.read()
        said = (progress.text(), shown(progress))
        if progress.step is not None and said != self._said:
            self._said = said
            print("step", *filter(None, said), sep="  ", file=sys.stderr, flush=True)


class _Printer:
    """Prints the new bytes of files, with a head line at each change of the file."""

    def __init__(self, run: RunPaths) -> None:
        self._run = run
        self._offsets: dict[Path, int] = {}
        self._last: Path | None = None

    def print_new(self, files: list[Path], lines: int | None = None) -> None:
        for path in files:
            with contextlib.suppress(FileNotFoundError, UnfitFileError):  # gone since it was listed
                self._print(path, lines, len(files))

    def _print(self, path: Path, lines: int | None, files: int) -> None:
        with open_file(path) as file:
            size = file.seek(0, 2)
            start = self._offsets.get(path, 0)
            if start > size:  # begun anew under its name
                start = 0
            if lines is not None:
                start = _last_lines(file, lines)
            file.seek(start)
            # Print no more than the present size: a log may grow faster than it is printed.
            self._offsets[path] = start + self._copy(path, file, size - start, files)

    def _copy(self, path: Path, file: BinaryIO, size: int, files: int) -> int:
        """Print `size` bytes in pieces; the number printed. A character is never cut in two."""
        decoder = getincrementaldecoder("utf-8")("replace")
        copied = 0
        while copied < size and (data := file.read(min(PIECE_BYTES, size - copied))):
            if not copied:
                self._head(path, many=files > 1 or self._last is not None)
            copied += len(data)
            text = decoder.decode(data)
            sys.stdout.write(_for_terminal(text) if sys.stdout.isatty() else text)
        kept = len(decoder.getstate()[0])  # first bytes of a half-written character
        sys.stdout.flush()
        return copied - kept

    def _head(self, path: Path, many: bool) -> None:
        if path != self._last and many:
            print(visible(f"==> {path.relative_to(self._run.root)} <=="))
        self._last = path


def _for_terminal(text: str) -> str:
    """`text` with its colours; a progress bar that is drawn over itself has a line for each state."""
    lines = text.replace("\r\n", "\n").replace("\r", "\n")
    parts = COLOUR.split(lines)
    kept = "".join(part if at % 2 else visible(part) for at, part in enumerate(parts))
    return kept + "\x1b[0m" if len(parts) > 1 else kept


def _last_lines(file: BinaryIO, lines: int) -> int:
    """Where the last lines of a file begin, found from its end."""
    at = file.seek(0, 2)
    if lines <= 0:
        return at
    ends, last = 0, True
    while at > 0:
        size = min(PIECE_BYTES, at)
        at -= size
        file.seek(at)
        piece = file.read(size)
        # The last line's own end does not begin another one.
        end = len(piece) - 1 if last and piece.endswith(b"\n") else len(piece)
        last = False
        while (end := piece.rfind(b"\n", 0, end)) >= 0:
            ends += 1
            if ends == lines:
                return at + end + 1
    return 0


def _list(run_paths: RunPaths, as_json: bool) -> int:
    rows = []
    for path in observe.all_logs(run_paths):
        with contextlib.suppress(FileNotFoundError):  # gone since it was listed
            rows.append((path.relative_to(run_paths.root).as_posix(), path.stat().st_size))
    if as_json:
        output.print_json([{"file": name, "bytes": size} for name, size in rows])
    else:
        output.print_table(("LOG", "SIZE"), [(name, output.size(size)) for name, size in rows])
    return 0


def _nothing(run_paths: RunPaths, args: argparse.Namespace) -> Exception:
    logs = observe.all_logs(run_paths)
    if not logs:
        fix = "look at `jobspec status` for what the run waits for"
        return fail(
            "run.no-log", f"run `{run_paths.run_id}` has no such log", "the run has written no log yet", fix
        )
    close = did_you_mean(args.node, {path.parent.name for path in logs}) if args.node else ""
    if args.name and not close:
        close = did_you_mean(args.name, {path.stem for path in logs})
    return fail(
        "run.no-log",
        f"run `{run_paths.run_id}` has no such log",
        why="existing logs: " + ", ".join(path.relative_to(run_paths.root).as_posix() for path in logs),
        fix=close or "list the logs by `--list`",
    )
