"""The commands of `runtime.pyz`, and the one place where the runtime turns errors into text."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import List, Sequence

from jobspec.finding import JobspecError, fail
from jobspec.plan import PLAN_VERSION, Plan, from_json
from jobspec.runtime.base import procs
from jobspec.runtime.base.full_disk import refusal
from jobspec.runtime.base.umask import keep_others_out

USAGE = """\
usage: runtime.pyz node --run-dir DIR | exec [--run-dir DIR] -- COMMAND... | version
       runtime.pyz sweep NODE_LOCAL
       runtime.pyz service NAME --run-dir DIR
       runtime.pyz dump [--apart SECONDS] [--json]
       runtime.pyz upstream-setup --run-dir DIR | upstream --run-dir DIR
"""
BLOCKED, USAGE_ERROR = 3, 2


def run(argv: Sequence[str]) -> int:
    """Do what the command line says; the exit status."""
    words = list(argv)
    keep_others_out()
    if words[:1] == ["version"]:
        sys.stdout.write(f"jobspec runtime, plan version {PLAN_VERSION}, Python {sys.version.split()[0]}\n")
        return 0
    try:
        if words[:1] == ["sweep"] and len(words) == 2:
            return _sweep(Path(words[1]))
        if words[:1] == ["dump"]:
            return _dump(words[1:])
        if words[:1] == ["node"]:
            return _node(_run_dir(words[1:]))
        if words[:1] == ["service"] and len(words) > 1:
            return _service(words[1], _run_dir(words[2:]))
        if words[:1] in (["upstream"], ["upstream-setup"]):
            return _upstream(words[0], _run_dir(words[1:]))
        if words[:1] == ["exec"] and "--" in words:
            split = words.index("--")
            return _exec(_run_dir(words[1:split]), words[split + 1 :])
    except JobspecError as problem:
        for finding in problem.findings:
            sys.stderr.write(finding.text() + "\n")
        return BLOCKED
    sys.stderr.write(USAGE)
    return USAGE_ERROR


def _run_dir(words: List[str]) -> Path:
    """`--run-dir DIR`, else $JOBSPEC_RUN_DIR, else the folder of this file."""
    if len(words) == 2 and words[0] == "--run-dir":
        return Path(words[1]).absolute()
    if words:
        raise fail("runtime.usage", f"`{' '.join(words)}` is not understood", USAGE.strip())
    return Path(os.environ.get("JOBSPEC_RUN_DIR") or Path(sys.argv[0]).parent).absolute()


def read_plan(run_dir: Path) -> Plan:
    """Raises: JobspecError when plan.json is missing or not a plan."""
    path = run_dir / "plan.json"
    try:
        return from_json(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, TypeError, KeyError) as problem:
        raise fail(
            "runtime.plan",
            f"`{path}` cannot be read: {problem}",
            "the run directory must be on shared storage, and mounted into the container",
            "render the run again, or correct `paths.runs` in the site profile",
        ) from problem


def _node(run_dir: Path) -> int:
    from jobspec.runtime.base.identity import from_environment
    from jobspec.runtime.head.phases import run_head
    from jobspec.runtime.node.salvage import salvage
    from jobspec.runtime.node.worker import run_worker

    env = dict(os.environ)
    who = from_environment(run_dir, env)
    plan = read_plan(run_dir)

    def agent() -> int:
        try:
            if env.get("JOBSPEC_SALVAGE"):  # the batch script's, after the agents were killed
                return salvage(plan, who, env)
            return run_head(plan, who, env) if who.is_head else run_worker(plan, who, env)
        except OSError as problem:
            why, fix = refusal(problem)
            what = f"the run directory cannot be written: {why} (`{problem.filename}`)"
            fix = fix or "put `paths.runs` on shared storage that this user may write"
            sys.stderr.write(fail("runtime.run-dir", what, fix=fix, node=who.name).findings[0].text() + "\n")
            return BLOCKED

    return procs.guard(agent)


def _service(name: str, run_dir: Path) -> int:
    """A service's own step, in its container: wait for the node's agent, which has it run the service."""
    from jobspec.runtime.base.identity import from_environment
    from jobspec.runtime.node import service_step

    env = dict(os.environ)
    plan, who = read_plan(run_dir), from_environment(run_dir, env)

    def step() -> int:
        try:
            return service_step.serve(plan, who, env, name)
        except OSError as problem:
            sys.stderr.write(f"jobspec: service `{name}` cannot wait on {who.name}: {problem}\n")
            return BLOCKED

    return procs.guard(step)


def _sweep(node_local: Path) -> int:
    """For a site's epilog, as the job's user: what killed runs have left below `node_local`."""
    from jobspec.runtime.node import sweep

    for folder in sweep.sweep(node_local):
        sys.stdout.write(f"removed {folder}\n")
    return 0


def _dump(words: List[str]) -> int:
    """Inside a run that goes on, on its head: take a dump of all nodes and print what it shows."""
    from jobspec.runtime.head import dumps

    as_json, apart, rest = "--json" in words, dumps.APART_S, [word for word in words if word != "--json"]
    try:
        apart = float(rest[1]) if rest[:1] == ["--apart"] and len(rest) == 2 else apart
    except ValueError:
        rest = ["?"]
    if rest and rest[0] != "--apart":
        raise fail("runtime.usage", f"`{' '.join(words)}` is not understood", USAGE.strip())
    attempt = Path(os.environ.get("JOBSPEC_ATTEMPT_DIR", ""))
    apart = min(dumps.MOST_APART_S, apart)
    limit = apart + 2 * dumps.NODE_S + dumps.RAY_S + 30.0
    try:
        folder = dumps.ask(attempt, apart, limit, os.urandom(4).hex()) if attempt.is_dir() else None
    except OSError as problem:
        why, fix = refusal(problem)
        what = f"the run's head cannot be asked: {why} (`{problem.filename}`)"
        raise fail(
            "dump.no-answer", what, fix=fix or "ask as the run's user, who may write there"
        ) from problem
    if folder is None:
        what = f"the run's head has taken no dump within {limit:.0f} s"
        fix = "ask while the run's commands run, on its head node; agent.log there says more"
        raise fail("dump.no-answer", what, fix=fix)
    name = "explanation.json" if as_json else "report.txt"
    sys.stdout.write((folder / name).read_text(encoding="utf-8"))
    return 0


def _upstream(entry: str, run_dir: Path) -> int:
    """The head's agent, or what leaves a node's agent behind, below the framework's own script."""
    from jobspec.runtime import upstream_agents

    plan = read_plan(run_dir)
    try:
        return (
            upstream_agents.head(plan, run_dir)
            if entry == "upstream"
            else upstream_agents.setup(plan, run_dir)
        )
    except OSError as problem:
        why, fix = refusal(problem)
        what = f"the agent cannot start: {why} (`{problem.filename}`)"
        raise fail("runtime.run-dir", what, fix=fix or "see that this user may write there") from problem


def _exec(run_dir: Path, command: Sequence[str]) -> int:
    from jobspec.runtime.node.exec_in_run import replace_process

    if not command:
        raise fail("runtime.usage", "no command after `--`", USAGE.strip())
    return replace_process(read_plan(run_dir), run_dir, command)
