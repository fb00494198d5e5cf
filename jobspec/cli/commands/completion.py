"""Print a completion script: `source <(jobspec completion bash)` completes commands, options and files."""

from __future__ import annotations

import argparse
from importlib import import_module

from jobspec.cli.commands import command_names
from jobspec.cli.parser import build_parser

_SCRIPT = """\
# bash completion for jobspec: source <(jobspec completion bash)
_jobspec() {{
  local current=${{COMP_WORDS[COMP_CWORD]}} command=${{COMP_WORDS[1]}} words=''
  if ((COMP_CWORD == 1)); then
    words='{commands}'
  elif [[ $current == -* ]]; then
    case $command in
{cases}
    esac
  fi
  mapfile -t COMPREPLY < <(compgen -W "$words" -- "$current")
}}
complete -o default -F _jobspec jobspec
"""


def add_arguments(into: argparse.ArgumentParser) -> None:
    into.add_argument("shell", choices=("bash",), help="the shell")


def run(args: argparse.Namespace) -> int:
    print(bash_script(), end="")
    return 0


def bash_script() -> str:
    names = command_names()
    cases = "\n".join(f"      {name}) words='{' '.join(_options(name))}' ;;" for name in names)
    return _SCRIPT.format(commands=" ".join(names), cases=cases)


def _options(name: str) -> list[str]:
    built = build_parser(name, import_module(f"jobspec.cli.commands.{name}"))
    parsers = [built]
    for action in built._actions:
        if isinstance(action, argparse._SubParsersAction):
            parsers.extend(action.choices.values())
    options = {
        option
        for item in parsers
        for action in item._actions
        for option in action.option_strings
        if option[:2] == "--"
    }
    return sorted(options)
