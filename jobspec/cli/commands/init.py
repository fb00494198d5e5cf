"""Write a commented spec to start from. An existing file is never overwritten."""

from __future__ import annotations

import argparse
from pathlib import Path

from jobspec.cli import output, parser
from jobspec.finding import fail

DEFAULT_NAME = "my-run"  # under it `starters/` holds a whole spec for each framework that ships with jobspec


def add_arguments(into: argparse.ArgumentParser) -> None:
    into.add_argument("--framework", metavar="NAME", default="command", help="default: command")
    name_help = f"the run's name (default {DEFAULT_NAME})"
    into.add_argument("--name", metavar="NAME", default=DEFAULT_NAME, help=name_help)
    into.add_argument("--out", metavar="FILE", help="default: NAME.yaml; - prints it")
    parser.add_json(into)


def run(args: argparse.Namespace) -> int:
    from jobspec.spec.load import parse_spec

    text = starter(args.framework, args.name)
    parse_spec(text, f"{args.name}.yaml", (), {})  # a bad --name is refused before anything is written
    if args.out == "-":
        print(text, end="")
        return 0
    path = Path(args.out or f"{args.name}.yaml")
    try:
        with path.open("x", encoding="utf-8") as file:
            file.write(text)
    except FileExistsError as problem:
        raise fail(
            "init.exists",
            f"`{path}` exists already",
            why="init never overwrites a file",
            fix="name another file by --out, or print it by --out -",
        ) from problem
    except OSError as problem:
        raise fail(
            "init.cannot-write",
            f"`{path}` cannot be written",
            why=(problem.strerror or str(problem)).lower(),
            fix="name a file in an existing folder",
        ) from problem
    if args.json:
        output.print_json({"file": str(path), "framework": args.framework})
    else:
        print(f"{path}: edit it, then `jobspec validate {path}` and `jobspec run {path}`")
    return 0


def starter(framework: str, name: str) -> str:
    """The commented spec for a framework. Raises: JobspecError for one that has none."""
    from importlib.resources import files

    specs = {Path(file.name).stem: file for file in files("jobspec.cli").joinpath("starters").iterdir()}
    if framework not in specs:
        from difflib import get_close_matches

        close = get_close_matches(framework, sorted(specs), n=1)
        raise fail(
            "init.framework",
            f"there is no starting spec for the framework `{framework}`",
            why=f"did you mean `{close[0]}`?" if close else "",
            fix="use one of " + ", ".join(f"`{item}`" for item in sorted(specs)),
        )
    return specs[framework].read_text("utf-8").replace(f"name: {DEFAULT_NAME}", f"name: {name}", 1)
