"""Say which of a spec's models and data sets are on shared storage, and bring the missing ones.

`--check` only looks. `--from DIR` copies from a mirror: a Hugging Face cache, or folders named ORG/NAME.
Without it, huggingface_hub downloads in a process of its own. What nodes download (`stage: hub`) is not
brought: the hub is asked for its size, commit and access. `--job` copies or downloads in a CPU job on the
cluster. Complete items are not brought again, and an interrupted download goes on where it ended. `--images`
is about container images instead, of the run and of services: each is imported once to the site's
`container.image_cache`, and runs of the spec then start from its file. Exit code 1 when an item is still
missing.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from jobspec import pipeline
from jobspec.cli import output, parser
from jobspec.finding import stop_on_errors
from jobspec.runtime.staging import shared

if TYPE_CHECKING:
    from jobspec.planning.resolve import Resolved

PROGRESS_S = 10.0
MAX_HOURS = 24 * 365


def _hours(text: str) -> float:
    hours = float(text)
    if not 0 < hours < MAX_HOURS:
        raise argparse.ArgumentTypeError(f"`{text}` is not a number of hours between 0 and {MAX_HOURS}")
    return hours


def add_arguments(into: argparse.ArgumentParser) -> None:
    parser.add_spec(into)
    into.add_argument("--check", action="store_true", help="only list present and missing items")
    what = into.add_mutually_exclusive_group()  # an image has no mirror
    what.add_argument(
        "--from", dest="mirror", metavar="DIR", help="copy from this folder instead of the network"
    )
    what.add_argument(
        "--images", action="store_true", help="import the container image once to the site's image cache"
    )
    into.add_argument(
        "--job", action="store_true", help="bring missing items by a CPU job on the cluster (submitit)"
    )
    into.add_argument(
        "--timeout",
        type=_hours,
        default=24.0,
        metavar="H",
        help="with --job or --images: give up after so many hours",
    )
    parser.add_json(into)


def run(args: argparse.Namespace) -> int:
    # This command brings missing models, so errors about them do not stop it.
    resolved = pipeline.resolve(parser.request(args))
    findings = [item for item in resolved.findings if not item.rule.startswith("stage.")]
    stop_on_errors(findings)
    plan = resolved.ready_plan
    if args.images:
        from jobspec.cli.stage_images import stage_images

        return stage_images(args, resolved)
    before = shared.inspect(plan)
    missing = [item for item in before if not item.present and not item.at_hub]
    if not args.check:
        for item in missing:
            if not args.json:
                print(f"{item.name}: bringing {item.source_name} to {item.path}", flush=True)
            _bring(args, resolved, item)
    after = shared.inspect(plan) if missing and not args.check else before
    if args.json:
        output.print_json([_as_json(item) for item in after])
    else:
        _print(after)
    return 1 if any(not item.present for item in after) else 0


def _bring(args: argparse.Namespace, resolved: Resolved, item: shared.Item) -> None:
    mirror = Path(args.mirror).expanduser().absolute() if args.mirror else None
    if args.job:
        from jobspec.launchers.function_jobs.stage import bring_there

        bring_there(resolved.cluster.profile, item, mirror, args.timeout * 3600)
        return
    printed_at = [0.0]

    def progress(count: int) -> None:
        if not args.json and time.monotonic() - printed_at[0] > PROGRESS_S:
            printed_at[0] = time.monotonic()
            print(f"{item.name}: {output.size(count)} on the disk", flush=True)

    shared.bring(item, mirror, progress)


def _print(items: tuple[shared.Item, ...]) -> None:
    if not items:
        print("the spec names no model and no data set")
        return
    rows = [
        (
            item.name,
            item.kind,
            ("at the hub" if item.at_hub else "there") if item.present else "MISSING",
            output.size(item.bytes) if item.present else "",
            str(item.files) if item.present else "",
            item.path,
        )
        for item in items
    ]
    output.print_table(("NAME", "KIND", "STATE", "SIZE", "FILES", "PATH"), rows)
    for item in items:
        if item.at_hub and item.present:
            print(f"{item.name}: the nodes download it; its commit is {item.revision}")
    output.print_findings(finding for item in items for finding in item.findings)


def _as_json(item: shared.Item) -> dict[str, Any]:
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
