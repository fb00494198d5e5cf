"""Print the completion script of a shell: commands, options, runs, clusters, levels, keys and rules by Tab.

bash: `source <(jobspec completion bash)`; zsh: the same with `zsh`, after `compinit`; fish:
`jobspec completion fish | source`. In the shell's start file the line works for every new shell.
"""

from __future__ import annotations

import argparse


def add_arguments(into: argparse.ArgumentParser) -> None:
    into.add_argument("shell", choices=("bash", "zsh", "fish"), help="the shell")


def run(args: argparse.Namespace) -> int:
    from argcomplete.shell_integration import shellcode

    print(shellcode(["jobspec"], shell=args.shell), end="")
    return 0
