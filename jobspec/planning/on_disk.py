"""Findings about the files that a plan names, as this machine sees them.

A command may run on a laptop, so a missing root folder says nothing about the cluster.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path

from jobspec.disk import exists, is_file, is_folder, is_readable, why_not_there
from jobspec.finding import Finding, error, warning
from jobspec.plan import ContainerPlan, Plan, StagePlan
from jobspec.planning.far_inputs import FarInputs, missing_there
from jobspec.units import is_below


def missing_sources(
    stage: Iterable[StagePlan], scheduler: str, far: FarInputs | None = None
) -> tuple[Finding, ...]:
    """A warning for each missing source. Nothing is known of a file system that is not mounted here.

    `far` is what the login node of a cluster with other file systems says.
    """
    if far is not None:
        return tuple(missing_there(stage, far))
    return tuple(
        warning(
            "stage.missing",
            f"`{item.source}` {why_not_there(item.source)}",
            why=f"the {item.kind} `{item.repo_id or item.name}` is read from there",
            fix="run `jobspec stage` to put it there" if item.repo_id else "check the path",
            path="model" if item.kind == "model" else "data",
        )
        for item in stage
        if is_missing(item, scheduler)
    )


def is_missing(item: StagePlan, scheduler: str) -> bool:
    """Whether a source is missing; False when its file system is not mounted here."""
    if item.from_hub:
        return False
    seen_here = scheduler == "local" or is_folder(Path(*Path(item.source).parts[:2]))
    return seen_here and not exists(item.source)


def missing_image(plan: Plan, far: FarInputs | None = None) -> tuple[Finding, ...]:
    """A warning for each image that is a path, where there is nothing."""
    return tuple(
        finding
        for at, one in plan.containers
        for finding in _missing_image(plan.scheduler, at, one.image, far)
    )


def _missing_image(scheduler: str, at: str, image: str, far: FarInputs | None) -> Iterable[Finding]:
    if not image.startswith("/"):
        return ()
    why = "no node could start it"
    if far is None:
        seen_here = scheduler == "local" or is_folder(Path(*Path(image).parts[:2]))
        wrong = why_not_there(image) if seen_here and not exists(image) else ""
    else:
        seen = far.get(image)
        problem = next((finding for finding in seen.findings if finding.is_error), None) if seen else None
        wrong = f"{seen.why} on `{seen.where}`" if seen and seen.why else ""
        if seen and problem is not None:  # there, and not for this user
            wrong, why = f"cannot be read on `{seen.where}`", problem.why or problem.what
    if not wrong:
        return ()
    what = f"the image `{image}` {wrong}"
    fix = "check the path; where only the nodes see it, `--allow container.image-absent`"
    return (warning("container.image-absent", what, why, fix, path=f"{at}container.image"),)


def missing_script(plan: Plan) -> tuple[Finding, ...]:
    """An error when the checkout is here and lacks the batch script that mode `upstream` runs."""
    script = plan.upstream
    if script is None or not is_readable(Path(script.root)) or Path(script.root, script.script).is_file():
        return ()
    return (
        error(
            "launch.upstream-unsupported",
            f"`{script.root}` has no `{script.script}`",
            why="mode `upstream` runs the checkout's own batch script",
            fix="use a checkout that has it, or `launch: {mode: ray}`",
            path="launch.mode",
        ),
    )


def missing_helpers(plan: Plan) -> tuple[Finding, ...]:
    """An error when a checkout is here and lacks the folder that the dataset helpers are built from."""
    source = plan.helpers.source if plan.helpers is not None else ""
    repo = next((repo for repo in plan.repos if source and is_below(source, repo.path)), None)
    if repo is None or not is_folder(repo.path) or is_folder(source):
        return ()
    return (
        error(
            "repo.helpers",
            f"`{source}` is no folder",
            why=f"the dataset helpers are built from it, in the checkout `{repo.name}`",
            fix="correct `mcore_helpers.subdir`, or run `git submodule update --init` in the checkout",
            path="mcore_helpers",
        ),
    )


def hidden_from_bundle(plan: Plan) -> tuple[Finding, ...]:
    """An error for each folder of the run that an OCI bundle's own config.json does not mount.

    Slurm starts the bundle with its own mounts and no others. An unreadable bundle has no findings.
    """
    return tuple(finding for at, one in plan.containers for finding in _hidden(plan.runs, at, one))


def _hidden(runs: str, at: str, container: ContainerPlan) -> Iterable[Finding]:
    config = Path(container.image) / "config.json"
    if container.runtime != "oci" or not is_file(config):
        return ()
    try:
        mounts = json.loads(config.read_text()).get("mounts", [])
        targets = [
            str(mount["destination"]) for mount in mounts if mount.get("source") == mount["destination"]
        ]
    except (ValueError, AttributeError, KeyError, TypeError) as problem:
        what = f"`{config}` is no OCI configuration: {problem}"
        return (
            error("container.oci-config", what, fix="make the bundle again", path=f"{at}container.image"),
        )
    needed = dict.fromkeys((runs, *(mount.source for mount in container.mounts)))
    return tuple(
        error(
            "container.oci-mount",
            f"the bundle `{container.image}` does not mount `{path}`",
            why="Slurm's OCI support starts a bundle with its own mounts and no others",
            fix=f"add a bind mount of `{path}` under the same name to {config}",
            path=f"{at}container.image",
        )
        for path in needed
        if not any(is_below(path, target) for target in targets)
    )
