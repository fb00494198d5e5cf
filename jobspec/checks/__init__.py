"""Pure rules over a Plan: everything that is known about a run before it is submitted.

Each module holds one group of rules; a rule is a function `(plan, spec, profile) -> findings` with a
stable id that `--allow` names. Nothing here opens a file, runs a command or knows a launcher.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

from jobspec.checks import (
    containers,
    environment,
    groups,
    launch,
    network,
    resources,
    sbatch_options,
    services,
    staging,
    upstream,
)
from jobspec.finding import ERROR, Finding, is_allowed, warning
from jobspec.plan import Plan
from jobspec.spec.group_sites import GroupSite, at_group
from jobspec.spec.job import JobSpec
from jobspec.spec.site import ClusterProfile

Rule = Callable[[Plan, JobSpec, ClusterProfile], Iterable[Finding]]

# About the nodes that Slurm is asked for: of each group by itself.
OF_A_GROUP: tuple[Rule, ...] = (*resources.OF_A_GROUP, *sbatch_options.RULES)
RULES: tuple[Rule, ...] = (
    *resources.RULES,
    *groups.RULES,
    *services.RULES,
    *launch.RULES,
    *containers.RULES,
    *environment.RULES,
    *network.RULES,
    *staging.RULES,
    *upstream.RULES,
)

# Harmless while a spec is written, a wasted allocation once it is submitted.
WRONG_AT_SUBMIT = frozenset({"local.module", "container.image-absent", "secrets.unset", "stage.missing"})


def check(
    plan: Plan, spec: JobSpec, profile: ClusterProfile, sites: Sequence[GroupSite] = ()
) -> tuple[Finding, ...]:
    """Every finding about a plan, each once. `sites` are those of the plan's groups. Pure."""
    found = list(_of_groups(plan, sites) if sites else _each(OF_A_GROUP, plan, spec, profile))
    return tuple(dict.fromkeys([*found, *_each(RULES, plan, spec, profile)]))


def _each(rules: Sequence[Rule], plan: Plan, spec: JobSpec, profile: ClusterProfile) -> Iterator[Finding]:
    return (finding for rule in rules for finding in rule(plan, spec, profile))


def _of_groups(plan: Plan, sites: Sequence[GroupSite]) -> Iterator[Finding]:
    for index, (part, site) in enumerate(zip(plan.groups, sites, strict=True)):
        found = _each(OF_A_GROUP, plan.only(part), site.spec, site.profile)
        yield from (at_group(finding, site.group, index) for finding in found)


def check_secrets(names: Sequence[str], env: Mapping[str, str]) -> tuple[Finding, ...]:
    """A warning for each secret that is not set in this environment; `at_submit` makes it an error."""
    return tuple(
        warning(
            "secrets.unset",
            f"the secret `{name}` is not set in this environment",
            why="the scheduler passes it on by name from the shell that submits",
            fix=f"export {name}=… before submitting, or remove it from `secrets`",
            path=f"secrets[{index}]",
        )
        for index, name in enumerate(names)
        if not env.get(name)
    )


def at_submit(findings: Iterable[Finding], allowed: Iterable[str] = ()) -> tuple[Finding, ...]:
    """The findings as they count when a run is about to be submitted: `WRONG_AT_SUBMIT` are errors."""
    names = tuple(allowed)
    return tuple(
        replace(f, severity=ERROR) if f.rule in WRONG_AT_SUBMIT and not is_allowed(f, names) else f
        for f in findings
    )


def not_allowed(findings: Iterable[Finding], names: Sequence[str]) -> tuple[Finding, ...]:
    """The findings, with a note on each error that `--allow` names and that stays an error."""
    note = "--allow cannot help: this error leaves nothing to plan"
    return tuple(
        replace(f, why=f"{f.why} ({note})" if f.why else note) if f.is_error and is_allowed(f, names) else f
        for f in findings
    )
