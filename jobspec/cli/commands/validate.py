"""Check specs: schema, cross-checks and plan checks, every mistake at once. Needs no cluster.

A spec with variants is checked as it is and with each of them; `SPEC:VARIANT` checks that one alone.

Exit code 2 when a spec has an error, 0 otherwise; warnings are printed and stop nothing.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Mapping, Sequence

from jobspec import pipeline
from jobspec.cli import output, parser
from jobspec.finding import Finding


def add_arguments(into: argparse.ArgumentParser) -> None:
    parser.add_spec(into, nargs="+")
    parser.add_json(into)


def run(args: argparse.Namespace) -> int:
    specs = dict.fromkeys(item for path in args.spec for item in (path, *_variants(path)))
    findings_by_spec = {path: pipeline.check(parser.request(args, path)) for path in specs}
    failed = [path for path, findings in findings_by_spec.items() if any(item.is_error for item in findings)]
    if args.json:
        checked = [
            {"spec": path, "ok": path not in failed, "findings": [item.to_json() for item in findings]}
            for path, findings in findings_by_spec.items()
        ]
        output.print_json({"ok": not failed, "specs": checked})
        return 2 if failed else 0
    printed: set[Finding] = set()
    for path, findings in findings_by_spec.items():
        # An error in a site profile or an option holds for every spec, and is printed once.
        output.print_findings(item for item in findings if item not in printed)
        printed.update(findings)
        if path not in failed:
            print(f"{path}: ok" + (f", {_count(len(findings), 'warning')}" if findings else ""))
    if failed:
        print(_summary(findings_by_spec, _profiles(args)))
    return 2 if failed else 0


def _variants(path: str) -> list[str]:
    from jobspec.spec.bases import split_variant, variants_of

    return [] if split_variant(path)[1] is not None else [f"{path}:{name}" for name in variants_of(path)]


def _profiles(args: argparse.Namespace) -> frozenset[str]:
    """The files that findings about a site profile name."""
    from jobspec.spec.find_site import list_clusters

    named = [args.cluster_file] if args.cluster_file else []
    return frozenset([*named, *(str(entry.path) for entry in list_clusters(os.environ))]) - {*args.spec}


def _summary(findings_by_spec: Mapping[str, Sequence[Finding]], profiles: frozenset[str]) -> str:
    """The number of errors in each file, and in each wrong option or variable.

    >>> from jobspec.finding import error
    >>> one, two = error("a", "x", file="spec.yaml"), error("b", "y", file="site.yaml")
    >>> _summary({"spec.yaml": [one, two]}, frozenset({"site.yaml"}))
    '1 error in spec.yaml, 1 in site profile site.yaml'
    """
    wrong: dict[str, set[Finding]] = {path: set() for path in findings_by_spec}
    for path, findings in findings_by_spec.items():
        for item in findings:
            if item.is_error:
                wrong.setdefault(_where(item, path, profiles), set()).add(item)
    counts = [(where, len(items)) for where, items in wrong.items() if items]
    (first, number), *rest = counts
    return ", ".join([f"{_count(number, 'error')} in {first}", *(f"{n} in {where}" for where, n in rest)])


def _where(item: Finding, spec: str, profiles: frozenset[str]) -> str:
    if item.file in profiles:
        return f"site profile {item.file}"
    return item.file if item.file.startswith(("--", "$")) else spec


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"
