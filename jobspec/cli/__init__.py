"""The command line: finds the command's module, runs it, turns every error into text and an exit code.

Imports nothing heavy: `jobspec --help` and a mistyped command must answer at once. Each command lives in a
module of its own with `add_arguments(parser)` and `run(args) -> int`, imported only when it is used.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence

from jobspec.cli.commands import COMMANDS, command_names

HEAD = """usage: jobspec COMMAND [OPTION…]

One YAML file in; a verified, reproducible RL post-training run out; and an honest verdict.
"""
TAIL = """
RUN is a run id, a unique prefix of one, a name (its newest run), a directory, or `last`.
`jobspec COMMAND --help` lists a command's options; every listing has --json.
Variables: JOBSPEC_CLUSTER (site profile), JOBSPEC_CLUSTERS (their folders), JOBSPEC_RUNS (folder of runs),
NO_COLOR; docs/cli.md lists all.
Exit codes: 0 done or Pass, 1 Fail, 2 bad spec or usage, 3 Blocked, 4 nothing ran, 70 a bug in jobspec.
"""


def main(argv: Sequence[str] | None = None) -> int:
    """The exit code of one command line. Never raises, never shows a traceback."""
    import gc
    import os

    if argv is None and "_ARGCOMPLETE" in os.environ:
        from jobspec.cli.completing import complete

        complete()
    from jobspec.cli import streams
    from jobspec.cli.boundary import guarded
    from jobspec.runtime.base.umask import keep_others_out

    gc.set_threshold(100_000)  # a sweep keeps all it makes: looking through it every 700 objects costs 5 %
    streams.prepare()
    keep_others_out()
    _leave_when_told()
    words = list(sys.argv[1:] if argv is None else argv)
    return guarded(lambda: _dispatch(words), as_json="--json" in words)


def _leave_when_told() -> None:
    """End by an exception at SIGTERM and SIGHUP, so that temporary files go and programs below end.

    Commands that follow a run have handlers of their own. What the caller ignores stays ignored.
    """
    import signal
    import threading

    if threading.current_thread() is not threading.main_thread():
        return
    for number in (signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) == signal.SIG_DFL:
            signal.signal(number, _leave)


def _leave(number: int, _frame: object) -> None:
    import signal

    signal.signal(number, signal.SIG_IGN)  # a second one must not end the tidying up
    raise SystemExit(128 + number)


def _dispatch(words: list[str]) -> int:
    if not words or words[0] in ("-h", "--help", "help"):
        if len(words) > 1 and words[0] == "help":
            return _dispatch([*words[1:], "--help"])
        print(help_text(), end="")
        return 0
    if words[0] in ("-V", "--version"):
        from jobspec.cli.output import version

        print(f"jobspec {version()}")
        return 0
    name, rest = words[0], words[1:]
    if name not in command_names():
        raise _unknown(name, command_names())
    from importlib import import_module

    from jobspec.cli.parser import build_parser

    _warn_of_variables()
    module = import_module(f"jobspec.cli.commands.{name}")
    parser = build_parser(name, module)
    code: int = module.run(parser.read(rest))
    return code


def _warn_of_variables() -> None:
    import os

    if any(name.startswith("JOBSPEC") for name in os.environ):
        from jobspec.cli.output import print_findings
        from jobspec.cli.variables import mistyped

        print_findings(mistyped(os.environ))


def _unknown(name: str, known: list[str]) -> Exception:
    from difflib import get_close_matches

    from jobspec.finding import fail

    close = get_close_matches(name, known, n=1)
    return fail(
        "usage.command",
        f"`{name}` is not a command" if not name.startswith("-") else f"`{name}` stands before the command",
        why=f"did you mean `{close[0]}`?" if close else "commands: " + ", ".join(known),
        fix="`jobspec --help` lists the commands",
    )


def help_text() -> str:
    lines = [HEAD, "\n"]
    for title, commands in COMMANDS:
        lines.append(f"{title}:\n")
        lines.extend(f"  {name:<11} {text}\n" for name, text in commands)
        lines.append("\n")
    return "".join(lines)[:-1] + TAIL
