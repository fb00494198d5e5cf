"""Print an instruction file for coding assistants: which command answers what, and how far a verdict goes.

`--out .claude/skills/jobspec/SKILL.md`, or the file that your assistant reads, writes it; the folder is made.
"""

from __future__ import annotations

import argparse
from importlib.resources import files
from pathlib import Path

from jobspec.cli import output, parser


def add_arguments(into: argparse.ArgumentParser) -> None:
    into.add_argument("--out", metavar="FILE", help="write it there; an existing file is never overwritten")
    parser.add_json(into)


def run(args: argparse.Namespace) -> int:
    text = files("jobspec.cli").joinpath("skill.md").read_text("utf-8")
    if args.out in (None, "", "-"):
        if args.json:
            output.print_json({"text": text})
        else:
            print(text, end="")
        return 0
    from jobspec.cli.new_file import write_new

    path = Path(args.out)
    path.parent.mkdir(parents=True, exist_ok=True)
    write_new(path, text)
    if args.json:
        output.print_json({"file": str(path)})
    else:
        print(path)
    return 0
