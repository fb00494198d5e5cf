"""List the RL frameworks that jobspec can run, or the levels or maintained recipes of one.

`require` reads what a checkout of Megatron-Bridge changes, and says which levels and variants that asks for.
"""

from __future__ import annotations

import argparse
from dataclasses import asdict
from typing import Any

from jobspec.cli import output, parser
from jobspec.cli.commands import framework_recipes


def add_arguments(into: argparse.ArgumentParser) -> None:
    actions = into.add_subparsers(
        dest="action", required=True, metavar="list|show|recipes|require", parser_class=parser.Parser
    )
    listing = actions.add_parser("list", help="all frameworks", allow_abbrev=False)
    show = actions.add_parser("show", help="one framework's levels", allow_abbrev=False)
    show.add_argument("name", metavar="NAME", help="framework")
    require = actions.add_parser("require", help="levels that a change asks for", allow_abbrev=False)
    require.add_argument("name", metavar="NAME", help="framework with a guide: nemo_rl or verl")
    require.add_argument("--repo", metavar="PATH", required=True, help="checkout of Megatron-Bridge")
    require.add_argument("--since", metavar="REF", default="main", help="what it left (default main)")
    require.add_argument("--spec", metavar="OUT.yaml", help="write a spec with these levels and variants")
    for action in (listing, show, require):
        parser.add_json(action)
    of_recipes = "maintained recipes of a checkout, and whether a site can hold them"
    framework_recipes.add_arguments(actions.add_parser("recipes", help=of_recipes, allow_abbrev=False))


def run(args: argparse.Namespace) -> int:
    from jobspec import frameworks

    if args.action == "recipes":
        return framework_recipes.run(args)
    if args.action == "list":
        known = [frameworks.get(name) for name in frameworks.names()]
        if args.json:
            output.print_json([_as_json(item) for item in known])
            return 0
        rows = [(item.name, ", ".join(level.name for level in item.levels), item.summary) for item in known]
        output.print_table(("FRAMEWORK", "LEVELS", "ABOUT"), rows)
        return 0
    item = frameworks.get(args.name)
    if args.action == "require":
        from jobspec.cli.commands.framework_require import require

        return require(item, args.repo, args.since, args.spec, args.json)
    if args.json:
        output.print_json(_as_json(item))
        return 0
    print(f"{item.name}: {item.summary}")
    for level in item.levels:
        print(f"\nlevel {level.number} `{level.name}`\n  proves: {level.proves}")
        if level.needs:
            print(f"  needs: {level.needs}")
        for text in level.not_proved:
            print(f"  does not prove: {text}")
        if level.variants:
            print(f"  variants: {', '.join(level.variants)}")
        for note in level.notes:
            print(f"    {note.name}: {note.about}")
            if note.needs:
                print(f"      needs: {note.needs}")
            if note.proof:
                print(f"      proof: {note.proof}")
    return 0


def _as_json(item: Any) -> dict[str, Any]:
    levels = [
        {
            "name": level.name,
            "number": level.number,
            "proves": level.proves,
            "not_proved": list(level.not_proved),
            "variants": list(level.variants),
            "needs": level.needs,
            "notes": [asdict(note) for note in level.notes],
        }
        for level in item.levels
    ]
    return {"name": item.name, "summary": item.summary, "levels": levels}
