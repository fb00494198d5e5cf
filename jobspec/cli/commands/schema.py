"""Print the JSON Schema (draft 2020-12) of job specs or of site profiles, for editors and other tools.

A spec that starts with `# yaml-language-server: $schema=FILE` is completed and checked while it is written.
"""

from __future__ import annotations

import argparse


def add_arguments(into: argparse.ArgumentParser) -> None:
    into.add_argument("kind", choices=("job", "cluster"), help="the schema to print")
    into.add_argument(
        "--json", action="store_true", help="accepted for uniformity: the output is JSON anyway"
    )


def run(args: argparse.Namespace) -> int:
    from jobspec.spec.schema import schema_text

    print(schema_text(args.kind), end="")
    return 0
