"""Submit a run's lock again: the same commits, patches, image, model revision and values.

`--check` submits nothing and lists what has changed and what cannot be the same; exit code 1 when the list is
not empty. RUN may also be a lock file. What a lock does that no run of yours has written is shown and must be
confirmed, before anything is fetched or started: on a terminal by an answer, elsewhere by `--yes`. A lock has
what was submitted: where a run recorded other code as it started, a warning says so.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from jobspec import pipeline
from jobspec.cli import consent, output, parser
from jobspec.cli.commands import submit as submit_command
from jobspec.finding import Finding, allow, fail, stop_on_errors, warning
from jobspec.runs.paths import RunPaths

if TYPE_CHECKING:
    from jobspec.evidence.evidence import RanCode
    from jobspec.planning.resolve import Resolved


def add_arguments(into: argparse.ArgumentParser) -> None:
    into.add_argument("run", metavar="RUN|LOCK", help="run id, prefix, directory, last, or a spec.lock.yaml")
    parser.add_runs(into)
    parser.add_cluster(into)
    into.add_argument("--check", action="store_true", help="only say what has changed, submit nothing")
    into.add_argument("--watch", action="store_true", help="follow the new run to its verdict")
    into.add_argument(
        "--allow", metavar="RULE", action="append", default=[], help="go on in spite of this rule"
    )
    into.add_argument("--yes", action="store_true", help="confirm a lock that no run of yours has written")
    parser.add_rerun(into)
    parser.add_json(into)


def run(args: argparse.Namespace) -> int:
    lock = _lock_file(args)
    request, text = parser.request(args, str(lock)), lock.read_bytes()
    resolved = pipeline.resolve(request)
    findings = (*changes(request, resolved), *ran_otherwise(lock))
    if args.check:
        return _report(findings, lock, args.json)
    stop_on_errors(findings)
    if not args.json:
        output.print_findings(findings)
    if not consent.is_own(lock):
        consent.confirm(lock, text, resolved, args.yes)
    return submit_command.start(request, args.watch, args.json)


def changes(request: pipeline.Request, resolved: Resolved) -> tuple[Finding, ...]:
    """What differs between the lock and what would run now, errors of the lock's own spec included."""
    from jobspec.planning.provenance import changed_since

    facts = resolved.loaded.data.get("lock")
    if not isinstance(facts, dict):
        raise fail(
            "reproduce.no-lock",
            f"`{request.spec}` is a spec, not a lock",
            why="it has no `lock` section",
            fix="name the spec.lock.yaml of a run, or submit the spec by `jobspec submit`",
        )
    return (*resolved.findings, *allow(changed_since(facts, resolved), request.allow))


def ran_otherwise(lock: Path) -> tuple[Finding, ...]:
    """A warning for each repository whose code, in the last attempt of the lock's run, was not the lock's."""
    from jobspec.evidence.read import read_evidence

    paths = RunPaths(lock.parent)
    if not paths.attempts():
        return ()
    attempt, code = paths.attempt(max(paths.attempts())), read_evidence(lock.parent).ran
    return tuple(_other_code(name, state, attempt) for name, state in code.items() if state.changed)


def _other_code(name: str, state: RanCode, attempt: Path) -> Finding:
    patch = f" and apply {attempt / state.patch}" if state.patch else ""
    return warning(
        "reproduce.ran",
        f"`{name}` was not as the lock says when the run started: {', '.join(state.changed[:5])}",
        why="the lock has what was submitted",
        fix=f"for what ran, check out {state.commit}{patch}",
        path="repos",
    )


def _report(findings: tuple[Finding, ...], lock: Path, as_json: bool) -> int:
    if as_json:
        output.print_json(
            {"lock": str(lock), "same": not findings, "findings": [item.to_json() for item in findings]}
        )
    else:
        output.print_findings(findings)
        print(f"{lock}: " + ("everything is as it was" if not findings else f"{len(findings)} differences"))
    return 1 if findings else 0


def _lock_file(args: argparse.Namespace) -> Path:
    named = Path(args.run)
    if named.is_file():
        return named
    run_paths = pipeline.store(args.runs).find(args.run)
    if not run_paths.lock.is_file():
        points = len(run_paths.points())
        raise fail(
            "reproduce.no-lock",
            f"run `{run_paths.run_id}` has no lock",
            why=f"it is a sweep of {points} points" if points else "spec.lock.yaml is missing",
            fix=f"name the lock of a point, such as {run_paths.root}/points/0"
            if points
            else "name a lock file",
        )
    return run_paths.lock
