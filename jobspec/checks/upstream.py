"""Rules for mode `upstream`: what the framework's own batch script needs from a plan.

Source: ray.sub of NVIDIA-NeMo/RL, main of 2026-08: it hands `CONTAINER`, `MOUNTS`, its own folder and the
log folder to srun and to `bash -c` without quotes, starts containers by pyxis alone, and needs Slurm.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from jobspec.finding import Finding, error, warning
from jobspec.plan import Plan
from jobspec.spec.job import JobSpec
from jobspec.spec.site import ClusterProfile

# `%` starts a pattern in srun's file names, `:` and `,` separate mounts; the shell splits or runs the rest.
PLAIN_PATH = re.compile(r"[\w./+@=~-]+", re.ASCII)
PLAIN_IMAGE = re.compile(r"[\w./+@=~:#-]+", re.ASCII)
MODE = "launch.mode"


def script_is_known(plan: Plan, spec: JobSpec, profile: ClusterProfile) -> Iterator[Finding]:
    if plan.mode == "upstream" and plan.upstream is None:
        yield error(
            "launch.upstream-unsupported",
            f"`{plan.framework}` names no batch script of its own for this spec",
            fix="use `launch: {mode: ray}`",
            path=MODE,
        )


def slurm_runs_it(plan: Plan, spec: JobSpec, profile: ClusterProfile) -> Iterator[Finding]:
    if plan.upstream is None:
        return
    if plan.scheduler != "slurm":
        yield error(
            "launch.upstream-slurm",
            f"`{plan.upstream.script}` is a Slurm batch script, and `{plan.cluster}` has no Slurm",
            fix="use a site profile with `scheduler: slurm`, or `launch: {mode: ray}`",
            path=MODE,
        )
    elif plan.container.runtime != "pyxis":
        yield error(
            "launch.upstream-container",
            f"`{plan.upstream.script}` starts its containers by pyxis, and `{plan.cluster}` uses "
            f"`{plan.container.runtime}`",
            fix="use `launch: {mode: ray}`, or a site profile with `container: {runtime: pyxis}`",
            path=MODE,
        )


def nodes_are_its_own(plan: Plan, spec: JobSpec, profile: ClusterProfile) -> Iterator[Finding]:
    if plan.upstream is not None and plan.scheduler == "slurm" and not plan.slurm.exclusive:
        yield warning(
            "launch.upstream-shared",
            f"`{plan.upstream.script}` shares its nodes with other jobs",
            why="the script has fixed ports and container names, and stops every Ray that it finds",
            fix="leave `resources.exclusive` out, or set it to true",
            path="resources.exclusive",
        )


def gpus_are_the_nodes(plan: Plan, spec: JobSpec, profile: ClusterProfile) -> Iterator[Finding]:
    """The script compares GPUS_PER_NODE with the partition's GRES, and ends with 1 where they differ."""
    has = profile.node.gpus
    if plan.upstream is not None and plan.slurm.gpus != "none" and has and plan.gpus_per_node != has:
        yield error(
            "launch.upstream-gpus",
            f"the run asks for {plan.gpus_per_node} GPUs a node, a node of `{plan.cluster}` has {has}",
            why=f"`{plan.upstream.script}` ends with 1 where GPUS_PER_NODE is not what the partition reports",
            fix=f"use `gpus_per_node: {has}`, or `launch: {{mode: ray}}`",
            path="resources.gpus_per_node",
        )


def words_survive(plan: Plan, spec: JobSpec, profile: ClusterProfile) -> Iterator[Finding]:
    """The script does not quote: a blank or a sign of the shell would change a text."""
    if plan.upstream is None:
        return
    texts = [
        ("container.image", plan.container.image, PLAIN_IMAGE),
        ("repos", plan.upstream.root, PLAIN_PATH),
    ]
    texts += [("paths.runs", plan.runs, PLAIN_PATH)]
    for mount in plan.container.mounts:
        texts += [("container.mounts", path, PLAIN_PATH) for path in (mount.source, mount.target)]
    for where, text, plain in texts:
        if text and not plain.fullmatch(text):
            yield error(
                "launch.upstream-characters",
                f"`{plan.upstream.script}` cannot take {text!r}",
                why="the script does not quote: only letters, digits and `._/+@=~-` stay as they are",
                fix="choose another name, or `launch: {mode: ray}`",
                path="" if where == "paths.runs" else where,
            )


RULES = (script_is_known, slurm_runs_it, nodes_are_its_own, gpus_are_the_nodes, words_survive)
