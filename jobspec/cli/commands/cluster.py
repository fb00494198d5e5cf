"""Site profiles: list them, show one, propose one from this login node, or prove one with a small job."""

from __future__ import annotations

import argparse
import os
import secrets
from pathlib import Path
from typing import TYPE_CHECKING, Any

from jobspec import pipeline
from jobspec.cli import output, parser
from jobspec.finding import Finding, fail

if TYPE_CHECKING:
    from jobspec.launchers.function_jobs.container_check import Start
    from jobspec.spec.site import ClusterProfile

IMPORT_SHARE = 0.8  # of the check's time: what is left is for its job to tell


def add_arguments(into: argparse.ArgumentParser) -> None:
    actions = into.add_subparsers(
        dest="action", required=True, metavar="list|show|detect|check", parser_class=parser.Parser
    )
    listing = actions.add_parser("list", help="profiles that can be used by name", allow_abbrev=False)
    show = actions.add_parser("show", help="one profile with every default", allow_abbrev=False)
    detect = actions.add_parser(
        "detect", help="propose a profile from sinfo, scontrol and this node", allow_abbrev=False
    )
    detect.add_argument("--name", default="mycluster", help="name of the proposed profile")
    detect.add_argument(
        "--partition", metavar="NAME", help="partition to describe (default: the site's default partition)"
    )
    check = actions.add_parser("check", help="prove a profile with a small job", allow_abbrev=False)
    check.add_argument(
        "--nodes", type=parser.whole_number(1), default=1, metavar="N", help="nodes of the job (default 1)"
    )
    check.add_argument(
        "--image", metavar="IMAGE", help="also start a container of it on each node, as a run would"
    )
    check.add_argument(
        "--timeout",
        type=parser.whole_number(1),
        default=300,
        metavar="S",
        help="seconds to wait (default 300)",
    )
    for action in (show, check):
        action.add_argument("name", metavar="NAME", nargs="?", help="profile; else JOBSPEC_CLUSTER or local")
        action.add_argument("--cluster-file", metavar="FILE", help="profile from a file")
    for action in (listing, show, detect, check):
        parser.add_json(action)


def run(args: argparse.Namespace) -> int:
    return {"list": _list, "show": _show, "detect": _detect, "check": _check}[args.action](args)


def _list(args: argparse.Namespace) -> int:
    from jobspec.spec.find_site import DEFAULT_CLUSTER, list_clusters, place_findings

    entries = list_clusters(os.environ)
    if args.json:
        output.print_json([{"name": e.name, "path": str(e.path), "origin": e.origin} for e in entries])
        return 0
    default = os.environ.get("JOBSPEC_CLUSTER") or DEFAULT_CLUSTER
    rows = [(e.name, e.origin, str(e.path), "default" if e.name == default else "") for e in entries]
    output.print_table(("CLUSTER", "FROM", "FILE", ""), rows)
    output.print_findings(place_findings(os.environ))
    return 0


def _show(args: argparse.Namespace) -> int:
    import yaml

    loaded = pipeline.profile(args.name, args.cluster_file)
    data = _plain(loaded.profile)
    if args.json:
        output.print_json({"path": str(loaded.path), "origin": loaded.origin, "profile": data})
        return 0
    print(f"# {loaded.path} ({loaded.origin})")
    print(yaml.safe_dump(data, sort_keys=False, allow_unicode=True), end="")
    output.print_findings(loaded.findings)
    return 0


def _plain(value: Any) -> Any:
    """A typed profile as plain data with every default written out."""
    import msgspec

    if isinstance(value, msgspec.Struct):
        return {item.encode_name: _plain(getattr(value, item.name)) for item in msgspec.structs.fields(value)}
    if isinstance(value, tuple):
        return [_plain(item) for item in value]
    return value


def _detect(args: argparse.Namespace) -> int:
    from jobspec.launchers.access.here import LocalClient
    from jobspec.launchers.reach import reach
    from jobspec.launchers.slurm.detect import detect, profile_text

    detected = detect(LocalClient(), reach(os.environ), args.partition or "")
    text = profile_text(detected, args.name)
    if args.json:
        output.print_json({"profile": text, "notes": list(detected.notes)})
    else:
        print(text, end="")
    return 0


def _facts(node: dict[str, Any]) -> str:
    return (
        f"Python {node['python']}, {node['cpus']} processors, {node['gpus']} GPUs, "
        f"{output.size(node['node_local_free'])} free on the node's disk, "
        f"containers: {', '.join(node['container']) or 'none'}"
    )


def _reduced(result: dict[str, Any]) -> str:
    variables = " ".join(f"{name}={value}" for name, value in result["variables"].items())
    return (
        f"all-reduce of {output.size(result['bytes'])} over {result['ranks']} x {result['device']} is right, "
        f"bus bandwidth {result['bus_gb_per_s']:.0f} GB/s ({result['backend']} {result['nccl']}, "
        f"torch {result['torch']}{', ' if variables else ''}{variables})"
    )


def _container(profile: ClusterProfile, image: str, timeout_s: float) -> Start:
    """How a container of `image` starts. Raises: JobspecError where the profile has no runtime."""
    from jobspec.launchers.function_jobs.container_check import Start
    from jobspec.plan import ContainerPlan
    from jobspec.planning.container import settled_image
    from jobspec.rendering.step_prefix import step_prefix

    site = profile.container
    if site.runtime == "none":
        what = f"`--image` needs a container runtime, and `{profile.name}` has none"
        raise fail("usage.arguments", what, fix="set `container.runtime` in the site profile")
    plan = ContainerPlan(
        runtime=site.runtime,
        image=settled_image(image, site.image_cache, Path.cwd(), os.environ),
        mount_home=site.mount_home,
        remap_root=site.remap_root,
    )
    prefix = step_prefix(plan, f"jobspec-check-{secrets.token_hex(4)}", gpus=profile.node.gpus)
    # Without a name Pyxis removes the container by itself.
    flags = tuple(flag for flag in prefix.flags if not flag.startswith("--container-name="))
    return Start(flags, prefix.words, profile.hooks.setup, timeout_s * IMPORT_SHARE)


def _check(args: argparse.Namespace) -> int:
    from jobspec.launchers.function_jobs.site_check import check_cluster

    loaded = pipeline.profile(args.name, args.cluster_file)
    start = _container(loaded.profile, args.image, args.timeout) if args.image else None
    result = check_cluster(loaded.profile, args.nodes, args.timeout, start)
    findings: tuple[Finding, ...] = (*loaded.findings, *result.findings)
    failed = any(finding.is_error for finding in findings)
    if args.json:
        output.print_json(
            {"ok": not failed, "nodes": result.nodes, "findings": [item.to_json() for item in findings]}
        )
        return 2 if failed else 0
    for node in result.nodes:
        print(f"{node['host']}: {_facts(node)}")
        if "python" in (node.get("started") or {}):
            print(f"{node['host']}: a container started, with Python {node['started']['python']}")
        reduced = node.get("all_reduce") or {}
        if reduced.get("backend") and not reduced["problem"]:
            print(f"{node['host']}: {_reduced(reduced)}")
    output.print_findings(findings)
    print(f"{loaded.profile.name}: {'not usable as it is' if failed else 'ok'}")
    return 2 if failed else 0
