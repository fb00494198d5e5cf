"""The command line: finds the command's module, runs it, turns every error into text and an exit code.

Imports nothing heavy: `jobspec --help` and a mistyped command must answer at once. Each command lives in a
module of its own with `add_arguments(parser)` and `run(args) -> int`, imported only when it is used.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence

# (name, module, one line). The order is the order of work, as `--help` shows it.
COMMANDS: tuple[tuple[str, tuple[tuple[str, str, str], ...]], ...] = (
    (
        "Write and check",
        (
            ("init", "init", "a commented spec to start from"),
            ("validate", "validate", "every mistake in a spec, without a cluster"),
            ("explain", "explain", "every resolved value and where it came from"),
            ("render", "render", "the exact files of a run, nothing submitted"),
            ("schema", "schema", "the JSON Schema of specs or of site profiles"),
        ),
    ),
    (
        "Run",
        (
            ("submit", "submit", "render a spec and start it"),
            ("run", "run", "submit, follow, report; the exit code is the verdict"),
            ("stage", "stage", "put a spec's model and data on shared storage beforehand"),
            ("status", "status", "where runs are"),
            ("logs", "logs", "what a run has printed"),
            ("attach", "attach", "a shell in a running job"),
            ("exec", "exec", "a command in a running job's container"),
            ("cancel", "cancel", "end runs"),
        ),
    ),
    (
        "Judge",
        (
            ("report", "report", "the verdict of a run, from its evidence files"),
            ("judge", "judge", "the same verdict over files of a run that jobspec did not launch"),
            ("compare", "compare", "what differed between runs, and what it did to the metrics"),
            ("reproduce", "reproduce", "submit a run's lock again; say what cannot be the same"),
            ("triage", "triage", "first cause, class and fix out of logs"),
        ),
    ),
    (
        "Set up",
        (
            ("cluster", "cluster", "list, show, detect and check site profiles"),
            ("framework", "framework", "list and show RL frameworks and their coverage levels"),
            ("doctor", "doctor", "what this machine has and lacks"),
            ("completion", "completion", "a completion script for bash"),
        ),
    ),
)

_HEAD = """usage: jobspec COMMAND [OPTION…]

One YAML file in; a verified, reproducible RL post-training run out; and an honest verdict.
"""
_TAIL = """
RUN is a run id, a unique prefix of one, a directory, or `last`.
`jobspec COMMAND --help` lists a command's options; every listing has --json.
Variables: JOBSPEC_CLUSTER (site profile), JOBSPEC_CLUSTERS (their folders), JOBSPEC_RUNS (folder of runs),
NO_COLOR; docs/cli.md has all.
Exit codes: 0 done or Pass, 1 Fail, 2 bad spec or usage, 3 Blocked, 4 nothing ran, 70 a bug in jobspec.
"""


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command line; the exit code. Never raises, never shows a traceback."""
    from jobspec.cli import streams
    from jobspec.cli.boundary import guarded

    streams.prepare()
    words = list(sys.argv[1:] if argv is None else argv)
    return guarded(lambda: _dispatch(words), as_json="--json" in words)


def command_modules() -> dict[str, str]:
    return {name: module for _, commands in COMMANDS for name, module, _ in commands}


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
    modules = command_modules()
    if name not in modules:
        raise _unknown(name, list(modules))
    from importlib import import_module

    from jobspec.cli.parser import build_parser

    _warn_of_variables()
    module = import_module(f"jobspec.cli.{modules[name]}")
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
    lines = [_HEAD, "\n"]
    for title, commands in COMMANDS:
        lines.append(f"{title}:\n")
        lines.extend(f"  {name:<11} {text}\n" for name, _, text in commands)
        lines.append("\n")
    return "".join(lines)[:-1] + _TAIL
