"""Models and data sets: pinned, and staged where every node can read them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from jobspec.finding import Finding, error, warning
from jobspec.plan import Plan, StagePlan
from jobspec.spec.job import JobSpec
from jobspec.spec.site import ClusterProfile

COMMIT = re.compile(r"[0-9a-f]{40}")


@dataclass(frozen=True)
class _Named:
    """An item as the spec names it."""

    item: StagePlan
    path: str
    revision: str | None


def _named(plan: Plan, spec: JobSpec) -> Iterator[_Named]:
    in_spec = {"model": ("model", spec.model.revision if spec.model else None)}
    in_spec |= {data.name: (f"data[{index}]", data.revision) for index, data in enumerate(spec.data)}
    for item in plan.stage:
        if item.name in in_spec:
            yield _Named(item, *in_spec[item.name])


def revisions_are_pinned(plan: Plan, spec: JobSpec, profile: ClusterProfile) -> Iterator[Finding]:
    for named in _named(plan, spec):
        if named.item.layout == "hf" and not COMMIT.fullmatch(named.revision or ""):
            yield _unpinned(named.item, named.revision, named.path)


def _unpinned(item: StagePlan, revision: str | None, path: str) -> Finding:
    where = f"{path}.revision" if revision else path
    what = f"`{item.repo_id}` is not pinned to a commit" + (f" (`{revision}` may move)" if revision else "")
    is_commit = COMMIT.fullmatch(item.revision)
    if item.from_hub and not is_commit:
        why = "nodes must not get different files: submission asks the hub for the commit, and pins it"
        fix = "set `revision` to a commit: `jobspec stage SPEC --check` tells which it is now"
        return warning("stage.hub-unpinned", what, why, fix, path=where)
    return warning(
        f"{item.kind.replace('dataset', 'data')}.unpinned",
        what,
        why="the same spec may mean other files tomorrow; "
        + ("the lock pins those of today" if is_commit else "which ones today, only staging can tell"),
        fix=f"set `revision: {item.revision}`" if is_commit else "set `revision` to a commit",
        path=where,
    )


def hub_can_be_asked(plan: Plan, spec: JobSpec, profile: ClusterProfile) -> Iterator[Finding]:
    for named in _named(plan, spec):
        if named.item.from_hub and not named.item.repo_id:
            what = "`stage: hub` needs a Hugging Face id, and this is a path"
            fix = "name it by its id, or use `stage: node_local`"
            yield error("stage.hub-by-path", what, fix=fix, path=f"{named.path}.stage")
        elif named.item.from_hub and not profile.network.internet:
            yield error(
                "stage.hub-no-internet",
                f"nodes of `{profile.name}` cannot download `{named.item.repo_id}` from the hub",
                "they reach no internet: its site profile says `network.internet: false`",
                "use `stage: node_local`, and run `jobspec stage SPEC` where there is a network",
                path=f"{named.path}.stage",
            )


RULES = (revisions_are_pinned, hub_can_be_asked)
