"""Print a JSON Schema (draft 2020-12): of job specs and site profiles for editors, of outputs for programs.

A spec that starts with `# yaml-language-server: $schema=FILE` is completed and checked while it is written.
`report`, `sweep` and `status` are what `jobspec report --json` prints of a run and of a sweep, and `jobspec
status --json`; their keys are stable, and new ones only added.
"""

from __future__ import annotations

import argparse
import json
import os
from typing import TYPE_CHECKING, Any

from jobspec.finding import fail

if TYPE_CHECKING:
    from jobspec.frameworks.base import Framework


OUTPUTS = {"report": "jobspec.report", "sweep": "jobspec.report", "status": "jobspec.cli"}  # and its package


def add_arguments(into: argparse.ArgumentParser) -> None:
    into.add_argument("kind", choices=("job", "cluster", *OUTPUTS), help="the schema to print")
    into.add_argument(
        "--here",
        action="store_true",
        help="of jobs: with the names of this installation: frameworks, their levels and variants, clusters",
    )
    into.add_argument(
        "--json", action="store_true", help="accepted for uniformity: the output is JSON anyway"
    )


def run(args: argparse.Namespace) -> int:
    from jobspec.spec.schema import schema_text

    if args.here and args.kind != "job":
        what = f"`--here` adds names to the schema of jobs, not of `{args.kind}`"
        raise fail("usage.arguments", what, fix="leave `--here` out")
    text = output_schema(args.kind) if args.kind in OUTPUTS else schema_text(args.kind)
    if args.here:
        text = json.dumps(with_names(json.loads(text)), indent=2) + "\n"
    print(text, end="")
    return 0


def output_schema(kind: str) -> str:
    """The schema of what a command prints with `--json`."""
    from importlib.resources import files

    return files(OUTPUTS[kind]).joinpath(f"{kind}.schema.json").read_text(encoding="utf-8")


def with_names(schema: dict[str, Any]) -> dict[str, Any]:
    """The schema of job specs with frameworks, clusters and the levels of each framework as choices."""
    from jobspec import frameworks
    from jobspec.spec.find_site import list_clusters

    known = {name: frameworks.get(name) for name in frameworks.names()}
    properties = schema["properties"]
    properties["framework"]["enum"] = list(known)
    clusters = [entry.name for entry in list_clusters(os.environ)]
    properties["cluster"]["anyOf"] = [{"enum": clusters}, {"type": "null"}]
    schema["allOf"] = [*schema.get("allOf", ()), *(_of_framework(item) for item in known.values())]
    return schema


def _of_framework(framework: Framework) -> dict[str, Any]:
    """What a spec of this framework may have below `coverage`. A level has a name and a number."""
    levels = [name for level in framework.levels for name in (level.name, level.number)]
    variants = sorted({variant for level in framework.levels for variant in level.variants})
    level: dict[str, Any] = {"enum": levels}
    coverage: dict[str, Any] = {"level": level, "levels": {"items": level}}
    if variants:  # `full+dummy`: two variants in one training
        choice = {"anyOf": [{"enum": variants}, {"pattern": r"\+"}]}
        coverage["variants"] = {"items": choice}
    return {
        "if": {"properties": {"framework": {"const": framework.name}}, "required": ["framework"]},
        # An editor's server would offer `coverage` once for this, and once for the key itself.
        "then": {"properties": {"coverage": {"properties": coverage, "doNotSuggest": True}}},
    }
