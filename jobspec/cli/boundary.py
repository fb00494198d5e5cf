"""The one place where an exception becomes text and an exit code."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable

from jobspec.finding import JobspecError

USAGE = 2
BUG = 70  # EX_SOFTWARE of sysexits.h
INTERRUPTED = 130  # 128 + SIGINT, as shells report it
PIPE_CLOSED = 141  # 128 + SIGPIPE


def guarded(function: Callable[[], int], as_json: bool = False) -> int:
    """The function's exit code, or the code of what it raised, told in words.

    Findings go to stderr as text, or to stdout as JSON, so that a script parses one stream.
    """
    try:
        code = function()
        sys.stdout.flush()
        return code
    except JobspecError as problem:
        _show(problem, as_json)
        return USAGE
    except SystemExit as leaving:  # argparse after --help
        return leaving.code if isinstance(leaving.code, int) else 0
    except KeyboardInterrupt:
        print("\ninterrupted", file=sys.stderr)
        return INTERRUPTED
    except BrokenPipeError:
        # Python flushes stdout once more at exit, which would complain about the same closed pipe.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return PIPE_CLOSED
    except Exception as bug:  # noqa: BLE001  nothing may reach the terminal as a traceback
        print(_bug_text(bug), file=sys.stderr)
        return BUG


def _show(problem: JobspecError, as_json: bool) -> None:
    if as_json:
        print(json.dumps({"ok": False, "findings": [item.to_json() for item in problem.findings]}, indent=2))
        return
    from jobspec.cli.output import print_findings

    print_findings(problem.findings)


def _bug_text(bug: Exception) -> str:
    import traceback

    trace = "".join(traceback.format_exception(bug))
    last = trace.strip().splitlines()[-1]
    return (
        f"error[jobspec.bug] {last}\n"
        "  what: this is a bug in jobspec, not a mistake of yours\n"
        f"  why:  {_save(trace)}\n"
        "  fix:  please report it with that file and the command line"
    )


def _save(trace: str) -> str:
    """Write the traceback where its user can find it; where it lies, or the reason it does not."""
    import tempfile

    try:
        with tempfile.NamedTemporaryFile(
            "w", prefix="jobspec-bug-", suffix=".txt", delete=False, encoding="utf-8"
        ) as file:
            file.write(f"argv: {sys.argv!r}\npython: {sys.version}\n\n{trace}")
            return f"the traceback is in {file.name}"
    except OSError as problem:
        return f"the traceback could not be saved: {problem}"
