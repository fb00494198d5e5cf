"""The site as one run has it, and as each of its groups of nodes has it."""

from __future__ import annotations

from msgspec import structs

from jobspec.planning.assemble import Resolution
from jobspec.planning.avoided_nodes import keep_away
from jobspec.planning.run_site import site_of_run
from jobspec.spec.group_sites import GroupSite, at_group, spec_of, sum_of_nodes


def settle_site(resolution: Resolution) -> None:
    """The spec's options over the profile's, and the listed nodes excluded."""
    entries, problems = resolution.lookups.avoided(resolution.env)
    before = resolution.profile
    site = site_of_run(before, resolution.spec)
    site, resolution.avoided = keep_away(site, resolution.spec.slurm, entries, problems)
    resolution.profile, resolution.origins = site.profile, {**resolution.origins, **site.origins}
    resolution.findings += site.findings
    groups = []
    for index, group in enumerate(resolution.spec.groups):
        spec = spec_of(resolution.spec, group)
        own, _ = keep_away(site_of_run(before, spec), spec.slurm, entries, ())
        groups.append(GroupSite(group, spec, own.profile))
        told = (at_group(finding, group, index) for finding in own.findings)
        resolution.findings += [finding for finding in told if finding not in resolution.findings]
    if groups:
        resolution.groups = tuple(groups)
        _sum_nodes(resolution)


def _sum_nodes(resolution: Resolution) -> None:
    """`resources.nodes` becomes the sum of the groups' nodes."""
    spec = resolution.spec
    resolution.findings += sum_of_nodes(spec, resolution.given.get("nodes"))
    nodes = sum(group.nodes for group in spec.groups)
    resolution.spec = structs.replace(spec, resources=structs.replace(spec.resources, nodes=nodes))
    resolution.default("resources.nodes", "default", "the sum of `groups`")
    for index, site in enumerate(resolution.groups):
        for key in ("gpus_per_node", "cpus_per_node"):
            if getattr(site.group, key) is None:
                given = key in resolution.given
                where = f"resources.{key}" if given else site.profile.name
                resolution.default(f"groups[{index}].{key}", "default" if given else "cluster", where)
