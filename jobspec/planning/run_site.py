"""The site as one run has it: a spec's own `slurm` and its kind of GPU, laid over the profile. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from msgspec import structs

from jobspec.finding import Finding, error, warning
from jobspec.spec.job import JobSpec
from jobspec.spec.paths import Origin
from jobspec.spec.site import ClusterProfile, GpuType
from jobspec.spec.slurm import Mail, RunOptions, SlurmOptions
from jobspec.words import did_you_mean, one_of

WORDS = ("account", "partition", "qos", "reservation", "constraint", "avoid_listed", "licenses", "nice")


@dataclass(frozen=True)
class RunSite:
    """`profile.slurm` has the options of the site and of the run, `profile.node` a node with its GPUs."""

    profile: ClusterProfile
    findings: tuple[Finding, ...] = ()
    origins: Mapping[str, Origin] = field(default_factory=dict)


def site_of_run(profile: ClusterProfile, spec: JobSpec) -> RunSite:
    """The profile with everything that the spec says of it, and where each value comes from."""
    if profile.scheduler == "local":
        return RunSite(profile, tuple(_unused(spec)))
    kind, problem = _kind(profile, spec)
    merged, origins = _merged(profile, spec.slurm)
    findings = [problem] if problem else []
    if kind is not None:
        of_kind = Origin("cluster", f"{profile.name}, gpu_type {spec.resources.gpu_type}")
        chosen, conflict = _with_kind(merged, kind, spec)
        findings += [conflict] if conflict else []
        origins |= {f"slurm.{key}": of_kind for key in chosen}
        merged |= chosen
    findings += _not_offered(profile, spec)
    node = kind.node if kind and kind.node else profile.node
    slurm = structs.replace(profile.slurm, **merged)
    return RunSite(structs.replace(profile, slurm=slurm, node=node), tuple(findings), origins)


def _unused(spec: JobSpec) -> Iterator[Finding]:
    given = (("slurm", spec.slurm != RunOptions()), ("resources.gpu_type", spec.resources.gpu_type))
    for path, is_given in given:
        if is_given:
            why, fix = "this machine has no Slurm", "leave it for a cluster, or remove it"
            yield warning("resources.unused", f"`{path}` has no effect here", why, fix, path=path)


def _kind(profile: ClusterProfile, spec: JobSpec) -> tuple[GpuType | None, Finding | None]:
    name, kinds = spec.resources.gpu_type, profile.slurm.gpu_types
    if name is None or name in kinds:
        return kinds.get(name or ""), None
    example = f"add `slurm.gpu_types: {{{name}: {{gres: {name}}}}}` to the profile, or remove `gpu_type`"
    return None, error(
        "resources.gpu-type",
        f"`{profile.name}` has no kind of GPU `{name}`",
        f"its profile names {one_of(kinds)}" if kinds else "its profile names none",
        did_you_mean(name, kinds) or (f"use {one_of(kinds)}" if kinds else example),
        path="resources.gpu_type",
    )


def _merged(profile: ClusterProfile, of_run: RunOptions) -> tuple[dict[str, Any], dict[str, Origin]]:
    """The options by name, and the origins of those that the profile gives."""
    site: SlurmOptions = profile.slurm
    values: dict[str, Any] = {}
    origins: dict[str, Origin] = {}
    for key in WORDS:
        own, given = getattr(of_run, key), getattr(site, key)
        values[key] = given if own is None else own
        if own is None and given is not None:
            origins[f"slurm.{key}"] = Origin("cluster", profile.name)
    values["mail"] = Mail(
        of_run.mail.events or site.mail.events,
        site.mail.user if of_run.mail.user is None else of_run.mail.user,
    )
    for key in ("events", "user"):
        if getattr(values["mail"], key) != getattr(of_run.mail, key):
            origins[f"slurm.mail.{key}"] = Origin("cluster", profile.name)
    values["exclude"] = ",".join(filter(None, (site.exclude, of_run.exclude)))
    values["extra_sbatch"] = (*site.extra_sbatch, *of_run.extra_sbatch)
    for key in ("exclude", "extra_sbatch"):
        if getattr(site, key):
            both = " and the spec" if getattr(of_run, key) else ""
            origins[f"slurm.{key}"] = Origin("cluster", f"{profile.name}{both}")
    return values, origins


def _grouped(features: str) -> str:
    """The features as one operand of `&`. Brackets lose their meaning within parentheses.

    >>> _grouped("ib|roce"), _grouped("[rack1|rack2]"), _grouped("(ib|roce)&nvme")
    ('(ib|roce)', '[rack1|rack2]', '(ib|roce)&nvme')
    """
    outside = re.sub(r"\[[^]]*\]|\([^)]*\)", "", features)
    return f"({features})" if "|" in outside else features


def _with_kind(
    merged: Mapping[str, Any], kind: GpuType, spec: JobSpec
) -> tuple[dict[str, Any], Finding | None]:
    """What a kind of GPU changes, and the conflict with a partition that the spec names."""
    chosen: dict[str, Any] = {}
    if kind.constraint:
        both = [text for text in (merged["constraint"], kind.constraint) if text]
        if sum("[" in text for text in both) > 1:
            return chosen, error(
                "resources.gpu-type",
                f"`{both[0]}` cannot be joined with `{kind.constraint}`, of `{spec.resources.gpu_type}` GPUs",
                "Slurm allows one pair of brackets in a job's constraint",
                "remove the brackets, or ask for another kind of GPU",
                path="slurm.constraint",
            )
        chosen["constraint"] = "&".join(_grouped(text) if len(both) > 1 else text for text in both)
    named, own = (kind.partition or "").split(","), spec.slurm.partition
    if kind.partition and own and not set(own.split(",")) <= set(named):
        return chosen, error(
            "resources.partition",
            f"`{spec.resources.gpu_type}` GPUs are in {one_of(named)}, and the spec asks for `{own}`",
            "`slurm.gpu_types` of the site profile",
            "remove `slurm.partition`, or ask for another kind of GPU",
            path="slurm.partition",
        )
    if kind.partition and not own:
        chosen["partition"] = kind.partition
    return chosen, None


def _not_offered(profile: ClusterProfile, spec: JobSpec) -> Iterator[Finding]:
    """A partition that the profile's limits do not name."""
    limits, own = profile.limits.partitions, spec.slurm.partition
    if not limits or not own or own == profile.slurm.partition:
        return
    for name in own.split(","):
        if name not in limits:
            yield error(
                "resources.partition",
                f"`{profile.name}` offers no partition `{name}`",
                f"`limits.partitions` of its profile: {', '.join(limits)}",
                did_you_mean(name, limits) or f"use {one_of(limits)}",
                path="slurm.partition",
            )
