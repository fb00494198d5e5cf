"""Say which of a spec's models and data sets are on shared storage, and bring those that are not.

`--check` only looks. `--from DIR` copies from a mirror: a Hugging Face cache, or folders named ORG/NAME;
otherwise huggingface_hub downloads, in a process of its own. Exit code 1 when something is still missing.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from jobspec import staging
from jobspec.cli import output, parser, pipeline


def add_arguments(into: argparse.ArgumentParser) -> None:
    parser.add_spec(into)
    into.add_argument("--check", action="store_true", help="only say what is there and what is missing")
    into.add_argument(
        "--from", dest="mirror", metavar="DIR", help="copy from this folder instead of the network"
    )
    parser.add_json(into)


def run(args: argparse.Namespace) -> int:
    # A model that is not there yet is what this command is for, so those errors do not stop it.
    resolved = pipeline.resolve(args)
    findings = [item for item in resolved.findings if not item.rule.startswith("stage.")]
    pipeline.stop_on_errors(findings)
    plan = pipeline.plan_of(resolved)
    before = staging.inspect(plan)
    missing = [item for item in before if not item.present]
    if not args.check:
        for item in missing:
            if not args.json:
                print(f"{item.name}: bringing {item.source_name} to {item.path}", flush=True)
            staging.bring(item, Path(args.mirror) if args.mirror else None)
    after = staging.inspect(plan) if missing and not args.check else before
    if args.json:
        output.print_json([_as_json(item) for item in after])
    else:
        _print(after)
    return 1 if any(not item.present for item in after) else 0


def _print(items: tuple[staging.Item, ...]) -> None:
    if not items:
        print("the spec names no model and no data set")
        return
    rows = [
        (
            item.name,
            item.kind,
            "there" if item.present else "MISSING",
            output.size(item.bytes) if item.present else "",
            str(item.files) if item.present else "",
            item.path,
        )
        for item in items
    ]
    output.print_table(("NAME", "KIND", "STATE", "SIZE", "FILES", "PATH"), rows)
    output.print_findings(finding for item in items for finding in item.findings)


def _as_json(item: staging.Item) -> dict[str, Any]:
    return {
        "name": item.name,
        "kind": item.kind,
        "present": item.present,
        "bytes": item.bytes,
        "files": item.files,
        "path": item.path,
        "repo_id": item.repo_id,
        "revision": item.revision,
        "findings": [finding.to_json() for finding in item.findings],
    }
