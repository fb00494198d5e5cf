"""The reference of the command line, `docs/cli.md`, from the parsers themselves."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from importlib import import_module

from jobspec.cli.commands import COMMANDS
from jobspec.cli.parser import build_parser
from jobspec.cli.variables import VARIABLES

_INTRO = """\
# Command line

<!-- Written by `python -m jobspec.reference.commands > docs/cli.md`; a test compares it with the parsers. -->

RUN is a run id, a unique prefix of one, a name (its newest run), a directory, or `last`. Without `--runs DIR`
or `JOBSPEC_RUNS`, runs are looked for in `./runs` and in every folder that this user has submitted to.

| exit code | means |
| --- | --- |
| 0 | done; for `run`, `report` and `judge`: Pass |
| 1 | Fail; for `triage`, `stage`, `doctor` and `reproduce --check`: something was found, missing or changed |
| 2 | bad spec or usage, or nowhere to write: the findings say what, why and what to do |
| 3 | Blocked: a cause outside what is tested |
| 4 | nothing ran |
| 70 | a bug in jobspec; the message names a file with the traceback |
| 130, 141 | interrupted; the reader of a pipe went away |

@VARIABLES@

With `--json` findings go to standard output as JSON as well, so that a script parses one stream.
"""


def reference() -> str:
    """The page as Markdown."""
    rows = [f"| `{name}` | {means} |" for name, means in VARIABLES.items()]
    table = "\n".join(["| variable | means |", "| --- | --- |", *rows])
    parts = [_INTRO.replace("@VARIABLES@", table)]
    for title, commands in COMMANDS:
        parts.append(f"## {title}\n")
        for name, _ in commands:
            parts.extend(_command(name))
    return "\n".join(parts)


def _command(name: str) -> Iterator[str]:
    parser = build_parser(name, import_module(f"jobspec.cli.commands.{name}"))
    yield f"### `jobspec {name}`\n\n{(parser.description or '').strip()}\n"
    yield from _arguments(parser)
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            about = {choice.dest: choice.help for choice in action._choices_actions}
            for sub, child in action.choices.items():
                yield f"`jobspec {name} {sub}`: {about[sub]}\n"
                yield from _arguments(child)


def _arguments(parser: argparse.ArgumentParser) -> Iterator[str]:
    rows = [
        f"| {_name(action)} | {action.help or ''} |"
        for action in parser._actions
        if not isinstance(action, argparse._HelpAction | argparse._SubParsersAction)
    ]
    if rows:
        yield "\n".join(["| argument | |", "| --- | --- |", *rows]) + "\n"


def _name(action: argparse.Action) -> str:
    value = action.metavar or (
        f"{{{','.join(map(str, action.choices))}}}" if action.choices else action.dest.upper()
    )
    if not action.option_strings:
        return f"`{value}`".replace("|", "\\|")
    takes = "" if action.nargs == 0 else f" {value}"
    return ", ".join(f"`{option}{takes}`" for option in action.option_strings).replace("|", "\\|")


if __name__ == "__main__":
    print(reference(), end="")
