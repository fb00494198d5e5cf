"""Write a commented spec to start from. An existing file is never overwritten."""

from __future__ import annotations

import argparse
import json
import re
from pathlib import Path
from typing import TYPE_CHECKING

from jobspec.cli import output, parser
from jobspec.finding import fail

if TYPE_CHECKING:
    from jobspec.frameworks.base import RecipeNote

DEFAULT_NAME = "my-run"  # under it `starters/` holds a whole spec for each framework that ships with jobspec


def add_arguments(into: argparse.ArgumentParser) -> None:
    into.add_argument("--framework", metavar="NAME", default="command", help="default: command")
    name_help = f"the run's name (default {DEFAULT_NAME})"
    into.add_argument("--name", metavar="NAME", default=DEFAULT_NAME, help=name_help)
    into.add_argument("--model", metavar="FAMILY", help="start from the closest maintained recipe (nemo_rl)")
    into.add_argument("--repo", metavar="PATH", help="the checkout with the recipes (default: this folder)")
    into.add_argument("--out", metavar="FILE", help="default: NAME.yaml; - prints it")
    parser.add_json(into)


def run(args: argparse.Namespace) -> int:
    from jobspec.spec.load import parse_spec

    text = starter(args.framework, args.name)
    if args.model is not None:
        text = with_recipe(text, closest(args.framework, args.repo or ".", args.model), args.repo or ".")
    elif args.repo is not None:
        raise fail(
            "usage.init", "--repo is only for the recipes of --model", fix="give --model FAMILY as well"
        )
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


def closest(framework: str, repo: str, model: str) -> RecipeNote:
    """The closest recipe of a checkout. Raises: JobspecError where there is none."""
    from jobspec import frameworks

    nearest = getattr(frameworks.get(framework), "closest_recipes", None)
    if nearest is None:
        what = f"`{framework}` has no recipes by name"
        raise fail("init.recipe", what, fix="leave out --model, or use --framework nemo_rl")
    found: tuple[RecipeNote, ...] = nearest(repo, model)
    if not found:
        what = f"no recipe in `{repo}` is for a model like `{model}`"
        fix = "name a checkout by --repo PATH; `jobspec framework recipes` lists what it has"
        raise fail("init.recipe", what, fix=fix)
    return found[0]


def with_recipe(text: str, recipe: RecipeNote, repo: str) -> str:
    """The starting spec with a recipe in place of the variant and of the sizes that come with it."""
    level = "parallel" if recipe.sizes else "smoke"
    time = f'"{recipe.minutes // 60:02}:{recipe.minutes % 60:02}:00"' if recipe.minutes else ""
    for pattern, lines in (
        (r"  level: \S+ *", f"  level: {level:<23}"),
        (r"  variants: .*\n", ""),
        (
            r"  nodes: .*\n",
            f"  nodes: {recipe.nodes:<23}# the recipe's; it also counts where a key is left out\n",
        ),
        (r"  gpus_per_node: .*\n", f"  gpus_per_node: {recipe.gpus}\n"),
        (r"  # (?=time: )" if time else r"(?!)", "  "),
        (r"  time: \S+ *", f"  time: {time:<24}"),
        (r"    path: ~/src/RL ", f"    path: {quoted(str(Path(repo).absolute()))} "),
        (
            r"# train:\n#   recipe: .*",
            f"train:\n  recipe: {recipe.name}   # {recipe.model}, {recipe.steps} steps",
        ),
    ):
        text = re.sub(f"(?m)^{pattern}", lines.replace("\\", r"\\"), text, count=1)
    return text


def quoted(path: str) -> str:
    """A path as YAML takes it."""
    return path if re.fullmatch(r"[\w./@+-]+", path) else json.dumps(path)


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
