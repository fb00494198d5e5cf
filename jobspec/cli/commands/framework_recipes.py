"""`jobspec framework recipes`: the maintained recipes of a checkout, and which of them a site can hold."""

from __future__ import annotations

import argparse
from os.path import commonpath
from pathlib import Path
from typing import TYPE_CHECKING, Any

from jobspec import pipeline
from jobspec.cli import output, parser
from jobspec.finding import fail

if TYPE_CHECKING:
    from jobspec.frameworks.base import RecipeNote
    from jobspec.planning.site_fit import Fit


def add_arguments(into: argparse.ArgumentParser) -> None:
    into.add_argument("name", metavar="NAME", help="framework")
    into.add_argument("--repo", metavar="PATH", default=".", help="its checkout (default: this folder)")
    into.add_argument("--model", metavar="FAMILY", default="", help="only of models whose name holds this")
    into.add_argument("--fits", action="store_true", help="only recipes that the site can hold")
    into.add_argument("--all", action="store_true", help="also recipes that jobspec cannot run")
    parser.add_cluster(into)
    parser.add_json(into)


def run(args: argparse.Namespace) -> int:
    from jobspec.planning.site_fit import site_fit
    from jobspec.runtime.checkouts.git import last_changes

    profile = pipeline.profile(args.cluster, args.cluster_file).profile
    notes = _notes(args.name, args.repo, args.model)
    days = last_changes(args.repo, commonpath([str(Path(note.file).parent) for note in notes]))
    rows = [(note, days.get(note.file, ""), site_fit(note, profile)) for note in notes]
    shown = [
        row for row in rows if (args.all or not row[0].problem) and (not args.fits or row[2].holds == "yes")
    ]
    if args.json:
        output.print_json([_as_json(*row) for row in shown])
        return 0
    unknown = {fit.why for _, _, fit in rows if fit.of_site}
    heads = ("RECIPE", "NODES x GPUS", "PARALLEL", "MODEL", "CHANGED", "FITS")
    output.print_table(heads, [_row(*row) for row in shown])
    _print_rest(rows, shown, args.all)
    for why in unknown:
        print(f"FITS is not known: {why}; name a site by --cluster")
    if not profile.limits.max_nodes:
        print("the site profile has no `limits.max_nodes`: the number of nodes was not compared")
    if not days:
        print("CHANGED is not known: the checkout is a shallow clone, or no git repository")
    return 0


def _notes(name: str, repo: str, family: str) -> list[RecipeNote]:
    from jobspec import frameworks

    adapter = frameworks.get(name)
    listed = getattr(adapter, "recipes", None)
    if listed is None:
        raise fail("usage.recipes", f"`{name}` has no recipes by name", fix="use `nemo_rl`")
    if not next(listed(repo), None):
        what, why = f"`{repo}` has no recipes of `{name}`", "no checkout of it is there"
        raise fail("usage.recipes", what, why, "name the checkout by --repo PATH")
    notes = list(listed(repo, family))
    if not notes:
        what = f"no recipe in `{repo}` is of a model `{family}`"
        near = [note.name for note in getattr(adapter, "closest_recipes", lambda *_: ())(repo, family)]
        fix = f"the closest is `{near[0]}`" if near else "use a shorter name, or leave out --model"
        raise fail("usage.recipes", what, fix=fix)
    return notes


def _row(note: RecipeNote, day: str, fit: Fit) -> tuple[str, ...]:
    sizes = " ".join(f"{name}{size}" for name, size in note.sizes.items())
    told = fit.holds == "yes" or fit.of_site  # said once for all
    holds = fit.holds if told else f"{fit.holds}: {fit.why}"
    problem = f"cannot run: {note.problem}" if note.problem else holds
    return note.name, f"{note.nodes} x {note.gpus}", sizes or "-", note.model, day or "-", problem


def _print_rest(rows: list[Any], shown: list[Any], all_shown: bool) -> None:
    print(f"\n{len(shown)} of {len(rows)} recipes", end="")
    left = sum(bool(note.problem) for note, _, _ in rows)
    print(f"; {left} that jobspec cannot run as they are: --all lists them" if left and not all_shown else "")
    print("FITS is by the site profile and the memory estimate: nothing was measured")


def _as_json(note: RecipeNote, day: str, fit: Fit) -> dict[str, Any]:
    return {
        "name": note.name,
        "file": note.file,
        "algorithm": note.algorithm,
        "model": note.model,
        "nodes": note.nodes,
        "gpus_per_node": note.gpus,
        "steps": note.steps,
        "minutes": note.minutes,
        "parallel": dict(note.sizes),
        "changed": day or None,
        "problem": note.problem,
        "fits": fit.holds,
        "why": fit.why,
    }
