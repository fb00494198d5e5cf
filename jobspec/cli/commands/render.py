"""Write the exact files of a run without starting anything.

`sbatch job.sbatch` (or `jobspec submit DIR`) in the folder runs it: jobspec is not needed to read, run or
debug what it rendered.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from jobspec import pipeline
from jobspec.cli import output, parser
from jobspec.finding import fail


def add_arguments(into: argparse.ArgumentParser) -> None:
    parser.add_spec(into)
    into.add_argument("--out", metavar="DIR", help="folder to write; it must not exist (default: a new run)")
    parser.add_json(into)


def run(args: argparse.Namespace) -> int:
    folder = Path(args.out) if args.out else None
    if folder is not None and folder.exists():
        raise fail(
            "render.exists",
            f"`{folder}` exists already",
            why="a run directory is written as a whole and never mixed with another",
            fix="name a folder that does not exist yet",
        )
    rendered = pipeline.render_run(parser.request(args), folder)
    if args.json:
        output.print_json(
            {
                "run_id": rendered.run.run_id,
                "run_dir": str(rendered.run.root),
                "files": list(rendered.names),
                "findings": [item.to_json() for item in rendered.findings],
            }
        )
        return 0
    output.print_findings(rendered.findings)
    top = [name for name in rendered.names if not name.startswith("points/")]
    points = len(rendered.run.points())
    print(f"{rendered.run.root}")
    print("  " + "  ".join(top) + (f"  points/0…{points - 1}" if points else ""))
    return 0
