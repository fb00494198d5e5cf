"""Submit a run's lock again: the same commits, patches, image, model revision and values.

RUN may also be a lock file, on another machine too. A checkout that is gone or has moved on is made again
below `<runs>/.checkouts`: of the old one's commits or its `origin`, the bundle of unpushed commits and the
patch beside the lock. A line names the folder; `--allow reproduce.repo` runs a checkout that has moved on as
it is. With another `--cluster` the values that the first site gave are asked of that one.

`--check` submits and restores nothing, and lists what has changed and what cannot be the same; exit code 1
when the list is not empty. Code, image, model, data, seed, environment, GPU, driver and packages are told as
same, as different, or as what nobody can tell; `--strict` refuses all but the same.

What a lock does that no run of yours has written is shown and must be confirmed, before anything is fetched
or started: on a terminal by an answer, elsewhere by `--yes`. A lock has what was submitted: where a run
recorded other code as it started, a warning says so.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from jobspec import pipeline
from jobspec.cli import consent, output, parser
from jobspec.cli.commands import submit as submit_command
from jobspec.disk import is_file, is_folder
from jobspec.finding import Finding, allow, error, fail, stop_on_errors, warning
from jobspec.runs.paths import RunPaths
from jobspec.runs.store import open_store
from jobspec.runtime.base.run_files import read_bytes

if TYPE_CHECKING:
    from jobspec.evidence.evidence import RanCode
    from jobspec.judging.sameness import Fact
    from jobspec.planning.resolve import Resolved
    from jobspec.planning.restored import Restoration


AS_IT_IS = ("reproduce.patch", "repo.ref-mismatch")  # what else differs where `reproduce.repo` is allowed


# Of the first run alone: what it waited for is long past.
RUN_ONCE = {"slurm.begin", "slurm.dependency"}


def add_arguments(into: argparse.ArgumentParser) -> None:
    into.add_argument(
        "run", metavar="RUN|LOCK", help="run id, prefix, name, directory, last, or a spec.lock.yaml"
    )
    parser.add_runs(into)
    parser.add_cluster(into)
    into.add_argument("--check", action="store_true", help="only say what has changed, submit nothing")
    into.add_argument("--strict", action="store_true", help="refuse what differs or cannot be told")
    into.add_argument("--watch", action="store_true", help="follow the new run to its verdict")
    into.add_argument(
        "--allow", metavar="RULE", action="append", default=[], help="go on in spite of this rule"
    )
    into.add_argument("--yes", action="store_true", help="confirm a lock that no run of yours has written")
    parser.add_rerun(into)
    parser.add_json(into)


def _content(lock: Path) -> bytes:
    try:
        return read_bytes(lock)  # a pipe could not be read again, and is no lock that was confirmed
    except OSError as problem:
        why = (problem.strerror or str(problem)).lower()
        raise fail("spec.file", f"`{lock}` cannot be read: {why}", fix="name a lock file") from problem


def run(args: argparse.Namespace) -> int:
    lock = _lock_file(args)
    text, is_own = _content(lock), consent.is_own(lock)
    request = replace(parser.request(args, str(lock)), reproduces=True, content=text)
    request, gone = prepare(request)
    made = [item for item in gone if not item.lacks]
    resolved = pipeline.resolve(request)
    if made and not args.check:
        stop_on_errors(changes(request, resolved, gone))
        if not is_own:
            consent.confirm(lock, text, resolved, args.yes, _deeds(made))
        for item in made:
            print(f"`{item.name}` is taken from `{item.new}`, since {item.why}", file=sys.stderr)
            _restore(item)
        resolved = pipeline.resolve(request)
    gone = tuple(item for item in gone if item.lacks or not is_folder(item.folder))
    told = map(_to_restore, made) if args.check else ()
    findings = (*told, *changes(request, resolved, gone), *ran_otherwise(lock))
    if args.check:
        as_is = _as_it_is(request, made) if made and resolved.plan is None else resolved
        facts = sameness(lock, as_is, [item.name for item in made])
        return _report(findings, facts, lock, args)
    facts = sameness(lock, resolved)
    stop_on_errors(findings)
    if args.strict:
        stop_on_errors(not_same(facts, findings))
    if not args.json:
        # Those of the spec itself are printed where it starts.
        output.print_findings([item for item in findings if item not in resolved.findings])
        _print_facts(facts)
    if not (is_own or made):
        consent.confirm(lock, text, resolved, args.yes)
    return submit_command.start(request, args.watch, args.json)


def prepare(request: pipeline.Request) -> tuple[pipeline.Request, tuple[Restoration, ...]]:
    """The request for this site, and the checkouts that must be made again for it."""
    from jobspec.planning.paths import absolute_profile
    from jobspec.planning.relocated import of_site
    from jobspec.planning.restored import restorable

    loaded, found = pipeline.load_on_site(request)
    site = absolute_profile(found.profile, os.environ)
    given = of_site(loaded.raw)
    if loaded.spec.cluster in (None, site.name):
        python = loaded.spec.container.python or ""
        is_gone = site.scheduler == "local" and python.startswith("/") and not is_file(python)
        gone_here = {"container.python"} if is_gone else set()
        given = {key: value for key, value in given.items() if key in gone_here | RUN_ONCE}
    far = site.scheduler == "slurm" and site.access.login != "here"  # its disks are not this machine's
    gone = () if far else restorable(loaded, site.paths.runs)
    if "reproduce.repo" in request.allow:
        gone = tuple(item for item in gone if not is_folder(item.old))
        request = replace(request, allow=(*request.allow, *AS_IT_IS))
    moved = {item.old: item.new for item in gone if not item.lacks}
    return replace(request, moved=moved, reset=tuple(given)), gone


def _as_it_is(request: pipeline.Request, made: Sequence[Restoration]) -> Resolved:
    """What would run in the checkouts that have moved on, for the facts that do not depend on them."""
    there = {item.old for item in made if is_folder(item.old)}
    moved = {old: new for old, new in request.moved.items() if old not in there}
    return pipeline.resolve(replace(request, moved=moved, allow=(*request.allow, *AS_IT_IS)))


def _deeds(made: Sequence[Restoration]) -> Iterator[tuple[str, str]]:
    for item in made:
        yield "restores", item.parts
        for names in item.patched:
            yield "changes", f"{names}   (by {item.patch.path.name if item.patch else ''})"


def _restore(item: Restoration) -> None:
    from jobspec.planning.restored import restore

    restore(item)


def changes(
    request: pipeline.Request, resolved: Resolved, gone: Sequence[Restoration] = ()
) -> tuple[Finding, ...]:
    """What differs between the lock and what would run now, errors of the lock's own spec included.

    The checkouts of `gone` are not there: those that can be made again are no difference.
    """
    from jobspec.planning.provenance import changed_since

    facts = resolved.loaded.data.get("lock")
    if not isinstance(facts, dict):
        raise fail(
            "reproduce.no-lock",
            f"`{request.spec}` is a spec, not a lock",
            why="it has no `lock` section",
            fix="name the spec.lock.yaml of a run, or submit the spec by `jobspec submit`",
        )
    names = [repo.name for repo in resolved.spec.repos]
    missing = {f"repos[{names.index(item.name)}].path" for item in gone}
    own = [item for item in resolved.findings if not (item.rule == "repo.missing" and item.path in missing)]
    lost = [_lost(item) for item in gone if item.lacks]
    since = changed_since(facts, resolved, [item.name for item in gone])
    return (*own, *allow([*lost, *since], request.allow))


def _lost(item: Restoration) -> Finding:
    what = f"the checkout of `{item.name}` cannot be made again: {item.lacks}"
    fix = f"restore it as {item.commit}, or give the whole run folder with its `patches`"
    return error("reproduce.repo", what, item.why, fix, path="repos")


def _to_restore(item: Restoration) -> Finding:
    state = "has moved on" if is_folder(item.old) else "is gone"
    what = f"`{item.name}` {state}: it will be made again from {item.parts}"
    fix = "leave it so, or run the checkout as it is by `--allow reproduce.repo`"
    return warning("reproduce.repo", what, item.why, fix if is_folder(item.old) else "", path="repos")


def sameness(lock: Path, resolved: Resolved, restored: Sequence[str] = ()) -> tuple[Fact, ...]:
    """What the lock and its run's record say, against this site; nothing without a plan.

    The repositories of `restored` will be made again, and are the lock's by then.
    """
    from jobspec.evidence.read import read_evidence
    from jobspec.judging.sameness import code_of, compared, machine_facts, planned_facts, seen_facts
    from jobspec.planning.lock import lock_data
    from jobspec.planning.provenance import pinned_repos, same_changes

    if resolved.plan is None:
        return ()
    run = RunPaths(lock.parent)
    # A sweep's folder has the plan of its first point alone.
    evidence = read_evidence(run.root) if run.plan.is_file() and not run.is_sweep else None
    plan = evidence.plan if evidence is not None and evidence.plan_read else None
    was = planned_facts(plan or resolved.plan, resolved.loaded.data)
    if plan is None:
        was["environment"] = ""  # a lock alone does not have that of its site
    seen = seen_facts(evidence) if evidence is not None else {}
    now = planned_facts(resolved.plan, lock_data(resolved))
    pinned_all = pinned_repos(resolved.loaded.data["lock"])
    for repo in resolved.repos:  # outputs of the run are no changes of its code
        pinned = pinned_all.get(repo.plan.name, {})
        if repo.plan.name in restored or (
            repo.state.commit == pinned.get("commit") and same_changes(pinned, repo.state, lock.parent)
        ):
            now[code_of(repo.plan.name)] = was.get(code_of(repo.plan.name), "")
    return compared({**was, **seen}, {**now, **machine_facts(resolved.plan, seen)})


def not_same(facts: Sequence[Fact], findings: Sequence[Finding]) -> list[Finding]:
    """An error for each fact that is not the same, and for each warning about a difference."""
    from jobspec.judging.sameness import DIFFERS, SAME

    rows = [
        (f"{fact.name} differs: it was {fact.was}, and is {fact.now}" if fact.word == DIFFERS else
         f"nobody can tell whether {fact.name} is the same")
        for fact in facts
        if fact.word != SAME
    ]  # fmt: skip
    rows += [item.what for item in findings if item.rule.startswith("reproduce.")]
    fix = "leave `--strict` out to run all the same"
    return [
        error("reproduce.not-same", what, "`--strict` asks for the same everywhere", fix) for what in rows
    ]


def _print_facts(facts: Sequence[Fact]) -> None:
    from jobspec.judging.sameness import DIFFERS, SAME, UNKNOWN

    same = [fact.name for fact in facts if fact.word == SAME]
    print(f"same: {', '.join(same) or 'nothing'}")
    for fact in facts:
        if fact.word == DIFFERS:
            print(f"differs: {fact.name}: it was {fact.was}, and is {fact.now}")
    unknown = [fact.name for fact in facts if fact.word == UNKNOWN]
    if unknown:
        print(f"can't tell: {', '.join(unknown)}")


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


def _report(
    findings: tuple[Finding, ...], facts: Sequence[Fact], lock: Path, args: argparse.Namespace
) -> int:
    from jobspec.judging.sameness import DIFFERS, SAME
    from jobspec.report.lines import counted

    if args.strict:
        findings = (*findings, *not_same(facts, ()))
    differences = sum(item.is_error or item.rule.startswith("reproduce.") for item in findings)
    if not args.strict:  # which has made errors of them
        differences += sum(fact.word == DIFFERS for fact in facts)
    if args.json:
        rows = [{"name": fact.name, "was": fact.was, "now": fact.now, "is": fact.word} for fact in facts]
        found = [item.to_json() for item in findings]
        output.print_json({"lock": str(lock), "same": not differences, "findings": found, "facts": rows})
    else:
        output.print_findings(findings)
        if facts:
            _print_facts(facts)
        told = all(fact.word == SAME for fact in facts)
        good = "everything is as it was" if told else "nothing that can be told differs"
        print(f"{lock}: {counted(differences, 'difference') if differences else good}")
    return 1 if differences else 0


def _lock_file(args: argparse.Namespace) -> Path:
    named = Path(args.run)
    if named.is_file():
        return named
    run_paths = open_store(args.runs).find(args.run)
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
