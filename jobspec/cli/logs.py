"""Print what a run has written: by default the driver's log of the newest attempt, else the job's.

`-f` follows until the job has ended; `--list` names all logs.
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path

from jobspec import launchers
from jobspec.cli import observe, output, parser, pipeline
from jobspec.finding import fail
from jobspec.runs import RunPaths, read_launch

POLL_S = 0.5


def add_arguments(into: argparse.ArgumentParser) -> None:
    parser.add_run(into)
    into.add_argument("-f", "--follow", action="store_true", help="go on until the job has ended")
    into.add_argument("-n", "--lines", type=int, metavar="N", help="only the last N lines of each log")
    into.add_argument("--node", metavar="NODE", default="", help="logs of one node")
    into.add_argument(
        "--name", metavar="NAME", default="", help="logs of one name: agent, ray, or a command's"
    )
    into.add_argument("--list", action="store_true", help="name the logs and their sizes")
    parser.add_json(into)


def run(args: argparse.Namespace) -> int:
    found = pipeline.store(args).find(args.run)
    launch = read_launch(found)
    if launch is not None:
        launchers.sync(launch)
    if args.list or args.json:
        return _list(found, args.json)
    printer = _Printer(found)
    files = observe.log_files(found, args.node, args.name)
    if not files and not args.follow:
        raise _nothing(found, args)
    printer.print_new(files, args.lines)
    while args.follow and not observe.observe([found])[0].final:
        time.sleep(POLL_S)
        if launch is not None:
            launchers.sync(launch)
        printer.print_new(observe.log_files(found, args.node, args.name))
    printer.print_new(observe.log_files(found, args.node, args.name))
    return 0


class _Printer:
    """Prints what is new in files, with a head line when it changes from one file to another."""

    def __init__(self, run: RunPaths) -> None:
        self._run = run
        self._offsets: dict[Path, int] = {}
        self._last: Path | None = None

    def print_new(self, files: list[Path], lines: int | None = None) -> None:
        for path in files:
            with path.open("rb") as file:
                file.seek(self._offsets.get(path, 0))
                data = file.read()
            self._offsets[path] = self._offsets.get(path, 0) + len(data)
            if lines is not None:
                data = b"".join(data.splitlines(keepends=True)[-lines:] if lines > 0 else [])
            if data:
                self._head(path, many=len(files) > 1 or self._last is not None)
                sys.stdout.write(data.decode("utf-8", "replace"))
                sys.stdout.flush()

    def _head(self, path: Path, many: bool) -> None:
        if path != self._last and many:
            print(f"==> {path.relative_to(self._run.root)} <==")
        self._last = path


def _list(found: RunPaths, as_json: bool) -> int:
    rows = [
        (path.relative_to(found.root).as_posix(), path.stat().st_size) for path in observe.all_logs(found)
    ]
    if as_json:
        output.print_json([{"file": name, "bytes": size} for name, size in rows])
    else:
        output.print_table(("LOG", "SIZE"), [(name, output.size(size)) for name, size in rows])
    return 0


def _nothing(found: RunPaths, args: argparse.Namespace) -> Exception:
    known = [path.relative_to(found.root).as_posix() for path in observe.all_logs(found)]
    return fail(
        "run.no-log",
        f"run `{found.run_id}` has no such log",
        why="there are: " + ", ".join(known) if known else "it has written nothing yet",
        fix="`--list` names the logs" if known else "`jobspec status` says what it waits for",
    )
