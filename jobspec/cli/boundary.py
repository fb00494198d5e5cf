"""The one place where an exception becomes text and an exit code."""

from __future__ import annotations

import errno
import json
import os
import sys
from collections.abc import Callable

from jobspec.cli.streams import drop_output
from jobspec.finding import Finding, JobspecError, error, visible

USAGE = 2
BUG = 70  # EX_SOFTWARE of sysexits.h
INTERRUPTED = 130  # 128 + SIGINT, as shells report it
PIPE_CLOSED = 141  # 128 + SIGPIPE
DISK = (errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EIO, errno.EFBIG)
ACCESS = (
    *(errno.EACCES, errno.EPERM, errno.EISDIR, errno.ENOTDIR),
    *(errno.ELOOP, errno.ENAMETOOLONG, errno.ESTALE),
)


def guarded(function: Callable[[], int], as_json: bool = False) -> int:
    """The function's exit code; an exception becomes a text and a code.

    Findings go to stderr as text, or to stdout as JSON, so that a script parses one stream.
    """
    try:
        return _with_words(function, as_json)
    except BrokenPipeError:
        drop_output()
        return PIPE_CLOSED
    except OSError:  # even standard error is full
        drop_output()
        return USAGE


def _with_words(function: Callable[[], int], as_json: bool) -> int:
    try:
        code = _run(function)
        sys.stdout.flush()
        return code
    except JobspecError as problem:
        _show(problem, as_json)
        sys.stdout.flush()
        return USAGE
    except KeyboardInterrupt:
        print("\ninterrupted", file=sys.stderr)
        return INTERRUPTED
    except BrokenPipeError:
        raise
    except Exception as bug:  # noqa: BLE001  nothing may reach the terminal as a traceback
        finding = _of_the_system(bug) if isinstance(bug, OSError) else None
        if finding is not None:
            return _refused(finding, as_json)
        print(_bug_text(bug), file=sys.stderr)
        return BUG


def _run(function: Callable[[], int]) -> int:
    try:
        return function()
    except SystemExit as leaving:  # argparse after --help
        return leaving.code if isinstance(leaving.code, int) else 0


def _refused(finding: Finding, as_json: bool) -> int:
    if finding.rule == "disk.write":
        drop_output()  # as JSON it would go where nothing can be written
        as_json = False
    _show(JobspecError(finding), as_json)
    sys.stdout.flush()
    return USAGE


def _of_the_system(problem: OSError) -> Finding | None:
    """The finding for an error of a disk or a folder; None for an error that is a bug.

    Every reader checks first whether its file exists, so a missing file is a bug.
    """
    if problem.errno in DISK:
        from jobspec.runtime.base.full_disk import refusal

        why, fix = refusal(problem)
        what = f"`{problem.filename}` cannot be written" if problem.filename else "output cannot be written"
        fix = fix or "make room at the target: standard output, the folder of runs, or TMPDIR"
        return error("disk.write", what, why, fix)
    why = (problem.strerror or str(problem)).lower()
    if problem.errno in ACCESS and problem.filename:
        fix = "check the path, its permissions and those of the folders above it"
        return error("file.access", f"`{os.fsdecode(problem.filename)}` cannot be used", why, fix)
    return None


def _show(problem: JobspecError, as_json: bool) -> None:
    if as_json:
        print(json.dumps({"ok": False, "findings": [item.to_json() for item in problem.findings]}, indent=2))
        return
    from jobspec.cli.output import print_findings

    print_findings(problem.findings)


def _bug_text(bug: Exception) -> str:
    import traceback

    trace = "".join(traceback.format_exception(bug))
    last = visible(trace.strip().splitlines()[-1])
    return (
        f"error[jobspec.bug] {last}\n"
        "  what: this is a bug in jobspec, not a mistake of yours\n"
        f"  why:  {_save(trace)}\n"
        "  fix:  report the bug with that file and the command line"
    )


def _save(trace: str) -> str:
    """Write the traceback to a temporary file; returns a sentence with its path or with the failure."""
    import tempfile

    try:
        with tempfile.NamedTemporaryFile(
            "w", prefix="jobspec-bug-", suffix=".txt", delete=False, encoding="utf-8"
        ) as file:
            file.write(f"argv: {sys.argv!r}\npython: {sys.version}\n\n{trace}")
            return f"the traceback is in {file.name}"
    except OSError as problem:
        return f"the traceback could not be saved: {problem}"
