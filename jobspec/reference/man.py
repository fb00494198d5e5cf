"""The manual page, `docs/jobspec.1`, from the parsers themselves, by argparse-manpage."""

from __future__ import annotations

import os
from importlib.metadata import version

from jobspec.cli import HEAD, TAIL
from jobspec.cli.commands import command_names
from jobspec.cli.completing import build


def page() -> str:
    """The page in troff."""
    from argparse_manpage.manpage import Manpage  # type: ignore[import-untyped]

    parser = build(command_names())
    parser.description = HEAD.split("\n\n", 1)[1] + TAIL
    # Without a date: the same parsers give the same page.
    about = {"version": version("jobspec-rl"), "manual_title": "jobspec", "date": " "}
    found = Manpage(parser, about, format="pretty")
    found.description = "declarative, verified RL post-training jobs on Slurm clusters"
    return str(found)


if __name__ == "__main__":
    os.environ["COLUMNS"] = "80"  # argparse folds usage lines at the terminal's width
    print(page(), end="")
