"""Check specs: schema, cross-checks and plan checks, every mistake at once. Needs no cluster.

Exit code 2 when a spec has an error, 0 otherwise; warnings are printed and stop nothing.
"""

from __future__ import annotations

import argparse

from jobspec.cli import output, parser, pipeline
from jobspec.finding import Finding, JobspecError


def add_arguments(into: argparse.ArgumentParser) -> None:
    parser.add_spec(into, nargs="+")
    parser.add_json(into)


def run(args: argparse.Namespace) -> int:
    found = {path: _findings(args, path) for path in args.spec}
    failed = [path for path, findings in found.items() if any(item.is_error for item in findings)]
    if args.json:
        specs = [
            {"spec": path, "ok": path not in failed, "findings": [item.to_json() for item in findings]}
            for path, findings in found.items()
        ]
        output.print_json({"ok": not failed, "specs": specs})
        return 2 if failed else 0
    for path, findings in found.items():
        output.print_findings(findings)
        if path not in failed:
            print(f"{path}: ok" + (f", {_count(len(findings), 'warning')}" if findings else ""))
    if failed:
        errors = sum(item.is_error for findings in found.values() for item in findings)
        print(f"{_count(errors, 'error')} in {', '.join(failed)}")
    return 2 if failed else 0


def _findings(args: argparse.Namespace, path: str) -> tuple[Finding, ...]:
    """Everything known against one spec, each point of its sweep included."""
    try:
        resolved = pipeline.resolve(args, path)
        if resolved.spec.sweep is None or any(item.is_error for item in resolved.findings):
            return tuple(resolved.findings)
        return tuple(dict.fromkeys((*resolved.findings, *pipeline.check_sweep(resolved, args))))
    except JobspecError as problem:
        return tuple(problem.findings)


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"
