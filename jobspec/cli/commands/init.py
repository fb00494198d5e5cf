"""Write a commented spec to start from. An existing file is never overwritten.

`--from-sbatch FILE` reads a batch script and runs no part of it: directives, container, mounts, environment
and command become a spec and a site profile. What has no place there is listed, what is dangerous is told.
"""

from __future__ import annotations

import argparse
import re
from pathlib import Path
from typing import TYPE_CHECKING

from jobspec import pipeline
from jobspec.cli import output, parser
from jobspec.cli.new_file import write_new
from jobspec.cli.site_spec import for_site, quoted
from jobspec.finding import fail
from jobspec.words import did_you_mean

if TYPE_CHECKING:
    from jobspec.frameworks.base import RecipeNote

DEFAULT_NAME = "my-run"  # under it `starters/` holds a whole spec for each framework that ships with jobspec


def add_arguments(into: argparse.ArgumentParser) -> None:
    into.add_argument("framework_wanted", metavar="FRAMEWORK", nargs="?", help="default: command")
    into.add_argument("--framework", metavar="NAME", help="the same")
    into.add_argument(
        "--cluster", metavar="NAME", help="for this site: its image, sizes, and checkouts found here"
    )
    name_help = f"the run's name (default {DEFAULT_NAME})"
    into.add_argument("--name", metavar="NAME", default=DEFAULT_NAME, help=name_help)
    recipes = into.add_mutually_exclusive_group()
    recipes.add_argument(
        "--model", metavar="FAMILY", help="start from the closest maintained recipe (nemo_rl)"
    )
    recipes.add_argument(
        "--from-recipe", metavar="RECIPE", help="start from this maintained recipe (nemo_rl)"
    )
    recipes.add_argument(
        "--from-sbatch",
        metavar="FILE",
        help="import a batch script: NAME.yaml and a site profile, NAME-site.yaml",
    )
    into.add_argument("--repo", metavar="PATH", help="the checkout with the recipes (default: this folder)")
    into.add_argument("--out", metavar="FILE", help="default: NAME.yaml; - prints it")
    parser.add_json(into)


def run(args: argparse.Namespace) -> int:
    from jobspec.spec.load import parse_spec

    if args.from_sbatch is not None:
        from jobspec.cli.from_sbatch.files import imported

        if given := args.framework_wanted or args.framework or args.repo:
            what = f"`{given}` does not go with --from-sbatch"
            fix = "leave it out; --out names the spec's file"
            raise fail("usage.init", what, fix=fix)
        return imported(args, DEFAULT_NAME)
    framework = _framework(args)
    text = starter(framework, args.name)
    repo = args.repo or "."
    if args.from_recipe is not None:
        text = with_recipe(text, named(framework, repo, args.from_recipe), repo)
    elif args.model is not None:
        text = with_recipe(text, closest(framework, repo, args.model), repo)
    elif args.repo is not None:
        what, fix = "--repo is only for recipes", "give --model FAMILY or --from-recipe NAME as well"
        raise fail("usage.init", what, fix=fix)
    if args.cluster is not None:
        here = Path.cwd()
        places = (here, here.parent, Path.home(), Path.home() / "src")
        text = for_site(text, framework, pipeline.profile(args.cluster, None), places)
    parse_spec(text, f"{args.name}.yaml", (), {})  # a bad --name is refused before anything is written
    if args.out == "-":
        print(text, end="")
        return 0
    path = Path(args.out or f"{args.name}.yaml")
    write_new(path, text)
    if args.json:
        output.print_json({"file": str(path), "framework": framework})
        return 0
    if args.cluster is not None:
        output.print_findings(item for item in pipeline.check(pipeline.Request(path)) if item.is_error)
    print(f"{path}: edit it, then `jobspec validate {path}` and `jobspec run {path}`")
    return 0


def _framework(args: argparse.Namespace) -> str:
    named_twice = args.framework_wanted and args.framework and args.framework_wanted != args.framework
    if named_twice:
        what = f"`{args.framework_wanted}` and `--framework {args.framework}` are two frameworks"
        raise fail("usage.init", what, fix="name one")
    return str(args.framework_wanted or args.framework or "command")


def named(framework: str, repo: str, name: str) -> RecipeNote:
    """The recipe of this name. Raises: JobspecError where there is none, or jobspec cannot run it."""
    from jobspec import frameworks

    listed = getattr(frameworks.get(framework), "recipes", None)
    if listed is None:
        what = f"`{framework}` has no recipes by name"
        raise fail("init.recipe", what, fix="leave out --from-recipe, or use nemo_rl")
    notes: dict[str, RecipeNote] = {note.name: note for note in listed(repo)}
    note = notes.get(name.removesuffix(".yaml"))
    if note is None:
        what = f"`{repo}` has no recipe `{name}`"
        fix = f"name one of `jobspec framework recipes {framework} --repo {repo}`"
        raise fail("init.recipe", what, did_you_mean(name, notes), fix)
    if note.problem:
        raise fail("init.recipe", f"jobspec does not run `{name}`", note.problem, "choose another recipe")
    return note


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
