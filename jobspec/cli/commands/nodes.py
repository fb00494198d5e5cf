"""Nodes to keep away from: list them, add some, take them off. `jobspec nodes` alone lists.

The list is yours, for all your submissions from this machine: what it names of a cluster is added to the
job's `--exclude` until the entry ends. `slurm.avoid_listed: false` of a spec or a profile leaves it out.

A report adds a node for a day where a line of the run names the node and says that its GPU is broken now. For
a port to the fabric, a mount, or a GPU that may be in order, it prints the `jobspec nodes add`.
"""

from __future__ import annotations

import argparse
import os
import re
import time
from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Any

from jobspec import pipeline
from jobspec.cli import output, parser
from jobspec.finding import fail, warning
from jobspec.runs import avoided
from jobspec.runs.store import open_store
from jobspec.units import duration, utc

if TYPE_CHECKING:
    from collections.abc import Sequence

    from jobspec.runs.avoided import Avoided

UNITS = {"h": 3600, "d": 86_400}
MOST_DAYS = 366
MOST_NODES = 1024  # in one command


def add_arguments(into: argparse.ArgumentParser) -> None:
    _add_shared(into)
    actions = into.add_subparsers(dest="action", metavar="list|add|remove", parser_class=parser.Parser)
    listing = actions.add_parser("list", help="the nodes in force (default)", allow_abbrev=False)
    adding = actions.add_parser("add", help="keep away from nodes", allow_abbrev=False)
    adding.add_argument("--for", dest="span", metavar="SPAN", default="24h", help="12h, 3d; default 24h")
    adding.add_argument("--reason", metavar="TEXT", default="", help="why, for people")
    adding.add_argument(
        "--run", metavar="RUN", help="the run whose files name the node: reason, evidence and cluster are its"
    )
    parser.add_runs(adding)
    removing = actions.add_parser("remove", help="take nodes off the list", allow_abbrev=False)
    for action in (adding, removing):
        action.add_argument("node", metavar="NODE", nargs="+", help="name, or Slurm's notation `n[1-3]`")
    for action in (listing, adding, removing):
        _add_shared(action, again=True)


def _add_shared(into: argparse.ArgumentParser, again: bool = False) -> None:
    """`--cluster` and `--json`, before the action or behind it: `again` keeps what stood before."""
    kept: dict[str, Any] = {"default": argparse.SUPPRESS} if again else {}
    into.add_argument("--cluster", metavar="NAME", help="site profile; else JOBSPEC_CLUSTER", **kept)
    into.add_argument("--json", action="store_true", help="print JSON for scripts", **kept)


def run(args: argparse.Namespace) -> int:
    return {"add": _add, "remove": _remove}.get(args.action, _list)(args)


def _list(args: argparse.Namespace) -> int:
    entries, problems = avoided.listed(os.environ)
    cluster = _known(args.cluster) if args.cluster else None
    shown = [entry for entry in entries if cluster in (None, entry.cluster)]
    if args.json:
        output.print_json([_data(entry) for entry in shown])
    elif shown:
        output.print_table(("NODE", "CLUSTER", "UNTIL", "REASON", "EVIDENCE"), [_row(e) for e in shown])
    elif not problems:
        print("no node is to be avoided")
    output.print_findings(problems)
    return 0


def _add(args: argparse.Namespace) -> int:
    nodes, now = _expanded(args.node), time.time()
    until = now + _seconds(args.span)
    if args.run is not None:
        entries = _of_run(args, nodes)
    else:
        cluster = _cluster(args)
        entries = [avoided.Avoided(node, cluster, until, args.reason[: avoided.MAX_TEXT]) for node in nodes]
    added = avoided.add(os.environ, [replace(entry, until=until, since=now) for entry in entries])
    _told(added, args.json, "is avoided")
    return 0


def _of_run(args: argparse.Namespace, nodes: Sequence[str]) -> list[Avoided]:
    """An entry for each node, with what the run's files say. Raises: JobspecError where they say nothing."""
    from jobspec.judging.named_nodes import named_nodes

    found = open_store(args.runs).find(args.run)
    evidence = pipeline.judge_run(found.root)[0]
    cluster = evidence.plan.cluster
    if args.cluster and args.cluster != cluster and _known(args.cluster) != cluster:
        what = f"run `{found.ref}` was on `{cluster}`, not on `{args.cluster}`"
        raise fail("usage.arguments", what, fix="leave `--cluster` out")
    told = {named.node: named for named in named_nodes(evidence)}
    entries = []
    for node in nodes:
        if node in told:
            entry = told[node].entry(evidence)
        elif args.reason:
            entry = avoided.Avoided(node, cluster, 0.0, run=evidence.run_id)
        else:
            raise fail(
                "nodes.not-named",
                f"nothing in run `{found.ref}` names `{node}` as broken",
                f"it names {', '.join(f'`{name}`' for name in told)}" if told else "it names no node",
                "say why by `--reason TEXT`",
            )
        entries.append(replace(entry, reason=args.reason[: avoided.MAX_TEXT] or entry.reason))
    return entries


def _remove(args: argparse.Namespace) -> int:
    nodes = _expanded(args.node)
    cluster = _known(args.cluster) if args.cluster else None
    taken = avoided.remove(os.environ, nodes, cluster)
    left = [node for node in nodes if node not in {entry.node for entry in taken}]
    if left:
        of = f" of `{cluster}`" if cluster else ""
        names = ", ".join(f"`{node}`" for node in left)
        told = warning("nodes.not-listed", f"{names}{of} {'is' if len(left) == 1 else 'are'} not on the list")
        output.print_findings([told])
    _told(taken, args.json, "is taken off")
    return 0


def _told(entries: Sequence[Avoided], as_json: bool, word: str) -> None:
    if as_json:
        output.print_json([_data(entry) for entry in entries])
        return
    for entry in entries:
        print(f"{entry.node} of {entry.cluster} {word} (until {utc(entry.until)})")


def _data(entry: Avoided) -> dict[str, Any]:
    return {key: value for key, value in asdict(entry).items() if key != "removed"}


def _row(entry: Avoided) -> tuple[str, ...]:
    left = duration(max(0.0, entry.until - time.time()))
    until = f"{utc(entry.until)}, in {left}"
    return (entry.node, entry.cluster, until, entry.reason or "-", entry.evidence or "-")


def _expanded(words: Sequence[str]) -> tuple[str, ...]:
    """The names of all nodes. Raises: JobspecError for what is none."""
    from jobspec.runtime.base.hostlist import HostlistError, expand

    try:
        nodes = tuple(dict.fromkeys(name for word in words for name in expand(word)))
    except HostlistError as problem:
        raise fail("usage.arguments", str(problem), fix="write it like `n3` or `n[1-3,7]`") from problem
    for node in nodes:
        if not avoided.NODE.fullmatch(node):
            raise fail("usage.arguments", f"`{node}` is no node's name", fix="write it like `n3` or `n[1-3]`")
    if not 0 < len(nodes) <= MOST_NODES:
        what = f"{len(nodes)} nodes in one command, more than {MOST_NODES}" if nodes else "no node is named"
        raise fail("usage.arguments", what, fix="name the nodes that are broken")
    return nodes


def _seconds(span: str) -> int:
    match = re.fullmatch(r"([1-9]\d{0,4})([hd])", span)
    seconds = int(match[1]) * UNITS[match[2]] if match else 0
    if not 0 < seconds <= MOST_DAYS * UNITS["d"]:
        what = f"`{span}` is no time span of at most {MOST_DAYS} days"
        raise fail("usage.arguments", what, fix="write it like `12h` or `3d`")
    return seconds


def _cluster(args: argparse.Namespace) -> str:
    name = args.cluster or os.environ.get("JOBSPEC_CLUSTER")
    if not name:
        what = "no cluster is named"
        raise fail("usage.arguments", what, "two clusters may have nodes of one name", "add `--cluster NAME`")
    return _known(name)


def _known(name: str) -> str:
    """What a profile's runs call their cluster, or a name of the list. Raises: JobspecError otherwise."""
    from jobspec.spec.find_site import load_cluster

    if name in {entry.cluster for entry in avoided.listed(os.environ)[0]}:
        return name
    profile = load_cluster(name).profile
    if profile.scheduler == "local":
        what = f"`{profile.name}` is this machine alone: its runs leave out no node"
        raise fail("usage.arguments", what, fix="name a Slurm cluster by `--cluster`")
    return profile.name
