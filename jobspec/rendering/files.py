"""Plan -> the files of a run directory, through `templates/`. Pure.

`quoting` puts values into a script, none of them unquoted. `script_check` asks bash and shellcheck about a
script. `run_folder` writes the files of a run directory.
"""

from __future__ import annotations

import posixpath
import random
import secrets
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from jobspec.checks.sbatch_options import resource_options, slurm_options
from jobspec.finding import JobspecError, fail
from jobspec.plan import CommandPlan, Plan
from jobspec.planning.container import with_mount
from jobspec.planning.provenance import bundle_name
from jobspec.rendering import node_containers, service_steps, upstream_script
from jobspec.rendering.quoting import Quoted, directive, environment, own_folders, quote
from jobspec.rendering.step_prefix import STEP_NAMES, StepPrefix, join_prefix, step_prefix
from jobspec.rendering.steps import apart, host_env, interpreter, one_task_each, step_flags
from jobspec.runs.paths import STEP_SCRIPTS, array_ranges
from jobspec.spec.interpolate import escape_data
from jobspec.spec.yaml.dump import dump_spec
from jobspec.units import is_below

if TYPE_CHECKING:
    from jobspec.planning.resolve import Resolved

PACKAGE = str(Path(__file__).parents[1])
RUN_ID_TIME = "%Y%m%d-%H%M%S"


HETJOB = "hetjob"  # behind `#SBATCH`: what follows is about the next component


def new_run_id(now: datetime, source: random.Random | None = None) -> str:
    """`20261128-010203-ab12cd`: sorts by time, unique without a register."""
    tail = f"{source.getrandbits(24):06x}" if source else secrets.token_hex(3)
    return f"{now.strftime(RUN_ID_TIME)}-{tail}"


def render(resolved: Resolved, run_id: str, run_dir: str, top: str = "") -> dict[str, bytes]:
    """The run directory's files, but for `runtime.pyz`: relative name -> content.

    `top` is a sweep's folder above, which holds runtime.pyz and the patches of all points.
    Raises: JobspecError when errors left no plan, or no script can hold a value.
    """
    plan = resolved.plan
    if plan is None:
        raise _no_plan()
    from jobspec.planning.lock import lock_text

    try:
        scripts = _scripts(plan, resolved, run_id, run_dir, f"{top or run_dir}/runtime.pyz")
    except ValueError as cause:
        raise fail("render.value", str(cause), fix="change the value") from cause
    files = {name: text.encode("utf-8", "surrogateescape") for name, text in scripts.items()}
    files["plan.json"] = plan_json(plan)
    files["spec.yaml"] = resolved.loaded.text.encode()
    files["spec.lock.yaml"] = lock_text(resolved, posixpath.relpath(top, run_dir) if top else "").encode()
    if not top:
        files["site.yaml"] = site_text(resolved)
        files.update(patches(resolved) | on_end(resolved))
    return dict(sorted(files.items()))


def site_text(resolved: Resolved) -> bytes:
    """The site's profile, so that the folder is validated and submitted without it."""
    data = msgspec.to_builtins(resolved.cluster.profile)
    hooks = {"hooks": data.pop("hooks")} if "hooks" in data else {}  # bash: nothing in it is a reference
    text = dump_spec(escape_data(data)) + (dump_spec(hooks) if hooks else "")
    return f"# Written by jobspec: the site profile that this run was rendered for.\n{text}".encode()


def on_end(resolved: Resolved) -> dict[str, bytes]:
    """`hooks.on_end` of the profile, for the job's last step and the commands that see the run's end."""
    hooks = resolved.cluster.profile.hooks.on_end
    return {"on_end.json": msgspec.json.format(msgspec.json.encode(hooks), indent=2) + b"\n"} if hooks else {}


def _no_plan() -> JobspecError:
    what = "the spec has errors, so there is nothing to render"
    return fail("render.no-plan", what, fix="see `jobspec validate`")


def patches(resolved: Resolved) -> dict[str, bytes]:
    """The uncommitted changes and the unpushed commits of each repository, by file name."""
    bundles = {
        bundle_name(repo.plan.name, module): content
        for repo in resolved.repos
        for module, content in repo.bundles.items()
    }
    return {repo.patch: repo.state.diff for repo in resolved.repos if repo.patch} | bundles


def _run_folder(plan: Plan, run_dir: str) -> str:
    """What the container shows of the runs: this one; those that may use its Ray, too, where it is held."""
    lends = plan.hold and plan.ray is not None and plan.runs and is_below(run_dir, plan.runs)
    return plan.runs if lends else run_dir


def _scripts(plan: Plan, resolved: Resolved, run_id: str, run_dir: str, runtime: str) -> dict[str, str]:
    slurm = plan.scheduler == "slurm"
    step_script = STEP_SCRIPTS[plan.mode] if slurm else "local.sh"
    env = host_env(plan.env if plan.mode == "upstream" else plan.container.env)
    nodelists = component_lists(plan)
    ordered = ("JOBSPEC_NODELIST",) if nodelists else ()
    names = (*(name for name, _ in env), *plan.passed, *ordered)
    foreign = plan.upstream if slurm and plan.mode == "upstream" else None
    container = with_mount(plan.container, _run_folder(plan, posixpath.dirname(runtime)))
    name = node_containers.container_name(run_id)
    prefix = step_prefix(container, name, names, plan.gpus_per_node)
    flags, before = (node_containers.of_attempt(words, name) for words in (prefix.flags, prefix.words))
    command = (*before, *interpreter(plan, plan.container), runtime, "node", "--run-dir", run_dir)
    values = {
        "title": f"{plan.name}: {plan.framework}, {plan.nodes} node(s), run {run_id}",
        "by_hand": "sbatch job.sbatch" if slurm else "bash job.sbatch",
        "run_dir": run_dir,
        "node_local": plan.node_local,
        "slurm": slurm,
        "watch_exit": slurm and plan.nodes > 1,
        "nodes": plan.nodes,
        "nodelists": nodelists,
        "parts": component_names(plan),
        "partitions": component_partitions(plan),
        "hold_idle": plan.hold_idle_s is not None,
        "hold_look": hold_look_s(plan),
        "directives": [*_written(directives(plan, run_dir))] if slurm else [],
        "requeue_max": plan.slurm.requeue_max if slurm else 0,
        "expedite": slurm and plan.slurm.expedite,
        "hooks": resolved.hooks,
        # This installation, for the job's last step. Nodes of a cluster behind SSH do not have it.
        "reporter": "" if resolved.remote else sys.executable,
        "package": PACKAGE,
        "prepare": node_containers.prepare(plan, run_id),
        "each_node": _each_node(plan) if slurm else (),
        "stale": upstream_script.stale_containers(plan),
        # The workers' step of a foreign script goes on until the job ends: nothing can clean up after it.
        "cleanup": () if foreign else node_containers.remove(plan, run_id),
        "head_container": upstream_script.HEAD_CONTAINER,
        "worker_container": upstream_script.WORKER_CONTAINER,
        "upstream": upstream_script.upstream_step(plan, foreign, run_dir, runtime) if foreign else None,
        "services": tuple(plan.service_containers),
        "step_script": step_script,
        "env": env,
        "env_stdin": prefix.env_stdin,
        "env_names": (*(n for n in STEP_NAMES if n != "SLURM_NODEID"), *plan.passed, *ordered),
        "srun": (*step_flags(plan, one_task_each(plan), plan.slurm.mpi), *flags),
        "command": command,
    }
    if prefix.env_stdin and nodelists:
        values["srun"] = apart(
            plan, (*step_flags(plan, ("--ntasks-per-node=1",), plan.slurm.mpi), *flags), command
        )
    files = {name: _template(name, values) for name in ("job.sbatch", step_script)}
    files |= service_steps.scripts(plan, run_dir, runtime, _template)
    files["driver.sh"] = _template(
        "driver.sh",
        {
            "env": [(name, own_folders(value)) for name, value in sorted(plan.env.items())],
            "commands": [_command(c) for c in (*plan.checks, *plan.commands)],
        },
    )
    files["attach.sh"] = _template("attach.sh", values | _attach(plan, prefix, run_id, run_dir, runtime))
    return files


def hold_look_s(plan: Plan) -> int:
    """Seconds between two looks at the steps of a held run: one call of squeue each."""
    return min(20, max(1, (plan.hold_idle_s or 0) // 4))


def plan_json(plan: Plan) -> bytes:
    """The same bytes as `plan.to_json`, by a compiled encoder: a sweep writes a thousand plans."""
    return msgspec.json.format(msgspec.json.encode(plan, order="sorted"), indent=2) + b"\n"


def render_array(
    base: Resolved,
    points: Sequence[int],
    run_id: str,
    run_dir: str,
    first: Resolved,
    *,
    in_turn: bool = False,
) -> dict[str, bytes]:
    """The top of a sweep's run directory: one batch script for all points, and the sweep's own spec and lock.

    `points` are the numbers of the points to run. `first` is any point: all ask for the same allocation.
    With `in_turn` the script runs the points one after the other in one allocation, without it as an array.
    """
    from jobspec.planning.lock import lock_text

    if base.plan is None or first.plan is None:
        raise _no_plan()
    in_turn = in_turn and first.plan.scheduler == "slurm"  # a local run is always in turn
    array = "" if in_turn else array_ranges(points)
    plan = replace(first.plan, slurm=replace(first.plan.slurm, array=array))
    values = {
        "title": f"{plan.name}: {plan.framework}, {len(points)} points, run {run_id}",
        "run_dir": run_dir,
        "points": tuple(map(str, points)),
        "directives": [*_written(directives(plan, run_dir, array=not in_turn))]
        if plan.scheduler == "slurm"
        else [],
    }
    return {
        "job.sbatch": _template("in_turn.sbatch" if in_turn else "array.sbatch", values).encode(),
        "plan.json": plan_json(plan),
        "spec.yaml": base.loaded.text.encode(),
        "spec.lock.yaml": lock_text(base).encode(),
        "site.yaml": site_text(base),
        **patches(base),
        **on_end(base),
    }


def _template(name: str, values: Mapping[str, Any]) -> str:
    return environment().get_template(f"{name}.j2").render(values)


def _written(lines: Iterable[str]) -> Iterator[str]:
    return (line if line == HETJOB else directive(line) for line in lines)


def directives(plan: Plan, run_dir: str, array: bool = False) -> Iterator[str]:
    """What follows `#SBATCH`, one option each, unquoted."""
    slurm, first = plan.slurm, plan.only(plan.components[0])
    yield f"--job-name={plan.name}"
    folder = run_dir.replace("%", "%%")  # `%` starts a pattern in Slurm's file names
    yield f"--output={folder}/points/%a/job-%A_%a.log" if array else f"--output={folder}/job-%j.log"
    yield "--open-mode=append"
    yield f"--chdir={run_dir}"
    yield from map(str, slurm_options(first))
    yield f"--nodes={first.nodes}"
    yield "--ntasks-per-node=1"
    yield from map(str, resource_options(first))
    requeue = "--requeue=expedite" if slurm.expedite else "--requeue" if slurm.requeue_max else "--no-requeue"
    yield requeue
    if slurm.grace_s:
        yield f"--signal=B:USR1@{slurm.grace_s}"
    # Only these names come from the submitting shell. With NIL none does; SLURM_CONF passes either way.
    export = f"--export={','.join(plan.passed) or 'NIL'}"
    yield export
    if slurm.array:
        yield f"--array={slurm.array}"
    yield from slurm.extra_sbatch
    for part in plan.components[1:]:
        yield HETJOB
        yield from map(str, slurm_options(plan.only(part), of_job=False))
        yield f"--nodes={part.nodes}"
        yield "--ntasks-per-node=1"
        yield from map(str, resource_options(plan.only(part)))
        yield from (requeue, export, *part.slurm.extra_sbatch)


def component_lists(plan: Plan) -> tuple[Quoted, ...]:
    """The host lists of a heterogeneous job's components, as its batch script finds them."""
    count = len(plan.components)
    names = (f'"$SLURM_JOB_NODELIST_HET_GROUP_{index}"' for index in range(count))
    return tuple(map(Quoted, names)) if plan.scheduler == "slurm" and count > 1 else ()


def component_names(plan: Plan) -> tuple[str, ...]:
    """The groups of each component, as they are told."""
    if len(plan.components) == 1:
        return ("the job",)
    return tuple(
        "group " + ", ".join(group.name for group in plan.groups if group.first in part.indices)
        for part in plan.components
    )


def component_partitions(plan: Plan) -> Quoted:
    """All partitions that the job may be in: one word for a list."""
    names = (
        quote(part.slurm.partition)
        if part.slurm.partition
        else f'"${{SLURM_JOB_PARTITION_HET_GROUP_{index}-}}"'
        for index, part in enumerate(plan.components)
    )
    return Quoted(",".join(names))


def _each_node(plan: Plan) -> tuple[str, ...]:
    return ("srun", *one_task_each(plan), "--mpi=none")


def _command(command: CommandPlan) -> dict[str, Any]:
    argv = ("bash", "-eo", "pipefail", "-c", *command.argv) if command.shell else command.argv
    env = sorted(command.env.items())
    return {"name": command.name, "on": command.on, "cwd": command.cwd, "env": env, "words": argv}


def _attach(plan: Plan, prefix: StepPrefix, run_id: str, run_dir: str, runtime: str) -> dict[str, Any]:
    """The call of `runtime.pyz exec` in the step's container, or in a second one with the same mounts."""
    if plan.mode == "upstream":  # attach.sh names the container: the head's has another name
        command = (plan.container.python, runtime, "exec", "--run-dir", run_dir, "--")
        return {"srun": (), "command": command, "named": False}
    agent = f"{runtime} node --run-dir {run_dir}"
    name = node_containers.container_name(run_id)
    flags, before = join_prefix(plan.container, prefix, name, agent)
    flags, before = (node_containers.of_attempt(words, name) for words in (flags, before))
    named = plan.container.runtime in ("pyxis", "podman")
    return {"srun": flags, "command": (*before, plan.container.python, runtime, "exec", "--"), "named": named}
