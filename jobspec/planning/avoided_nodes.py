"""The user's list of nodes to avoid, laid over a run's site: what `--exclude` gets beside the keys."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from msgspec import structs

from jobspec.finding import Finding, warning
from jobspec.planning.run_site import RunSite
from jobspec.runs.avoided import Avoided
from jobspec.runtime.base import hostlist
from jobspec.spec.paths import Origin
from jobspec.spec.slurm import RunOptions
from jobspec.units import utc
from jobspec.words import some

MOST_NAMED = 8


def keep_away(
    site: RunSite, of_run: RunOptions, entries: Sequence[Avoided], problems: Sequence[Finding]
) -> tuple[RunSite, tuple[Avoided, ...]]:
    """The site with the listed nodes of its cluster excluded, and which these are.

    Nodes that the run names in `slurm.nodelist` win, with a warning. `problems` are those of the list.
    """
    profile = site.profile
    slurm = profile.slurm
    if profile.scheduler == "local" or slurm.avoid_listed is False:
        return site, ()
    ours = [entry for entry in entries if entry.cluster == profile.name]
    asked, excluded = hostlist.names(of_run.nodelist or ""), hostlist.names(slurm.exclude or "")
    named = [entry for entry in ours if entry.node in asked]
    avoided = tuple(entry for entry in ours if entry.node not in asked | excluded)
    findings = [*site.findings, *problems, *(_asked_for(entry) for entry in named)]
    if not avoided:
        return replace(site, findings=tuple(findings)), ()
    exclude = ",".join((*filter(None, (slurm.exclude,)), *(entry.node for entry in avoided)))
    findings.append(_told(avoided))
    profile = structs.replace(profile, slurm=structs.replace(slurm, exclude=exclude))
    origins = {**site.origins, "slurm.exclude": _origin(site.origins, of_run)}
    return RunSite(profile, tuple(findings), origins), avoided


def _origin(origins: Mapping[str, Origin], of_run: RunOptions) -> Origin:
    before = origins.get("slurm.exclude")
    if before is not None:
        return Origin("cluster", f"{before.where.replace(' and ', ', ')} and `jobspec nodes`")
    return Origin("nodes", "`jobspec nodes`" + (" and the spec" if of_run.exclude else ""))


def _asked_for(entry: Avoided) -> Finding:
    return warning(
        "nodes.asked-for",
        f"`slurm.nodelist` asks for `{entry.node}`, which is on your list of nodes to avoid",
        _why(entry),
        f"name another node, or run `jobspec nodes remove {entry.node} --cluster {entry.cluster}`",
        path="slurm.nodelist",
    )


def _told(avoided: Sequence[Avoided]) -> Finding:
    named = [f"`{entry.node}` until {utc(entry.until)} ({_why(entry)})" for entry in avoided[:MOST_NAMED]]
    more = len(avoided) - len(named)
    return warning(
        "nodes.avoided",
        f"your list of nodes to avoid excludes {_names(entry.node for entry in avoided)}",
        "; ".join(named) + (f"; and {more} more: see `jobspec nodes`" if more else ""),
        f"`jobspec nodes remove {avoided[0].node} --cluster {avoided[0].cluster}` takes one off; "
        "`--set slurm.avoid_listed=false` leaves the list out",
        path="slurm.exclude",
    )


def _names(nodes: Iterable[str]) -> str:
    return some([f"`{node}`" for node in nodes], MOST_NAMED)


def _why(entry: Avoided) -> str:
    return ": ".join(part for part in (entry.reason, entry.evidence) if part) or "no reason is noted"
