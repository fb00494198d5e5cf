"""Models and data sets: pinned, and staged where every node can read them."""

from __future__ import annotations

import re
from collections.abc import Iterator

from jobspec.finding import Finding, warning
from jobspec.plan import Plan, StagePlan
from jobspec.spec.job import JobSpec
from jobspec.spec.site import ClusterProfile

COMMIT = re.compile(r"[0-9a-f]{40}")


def revisions_are_pinned(plan: Plan, spec: JobSpec, profile: ClusterProfile) -> Iterator[Finding]:
    in_spec = {"model": ("model", spec.model.revision if spec.model else None)}
    in_spec |= {data.name: (f"data[{index}]", data.revision) for index, data in enumerate(spec.data)}
    for item in plan.stage:
        path, revision = in_spec.get(item.name, ("", ""))
        if path and item.layout == "hf" and not COMMIT.fullmatch(revision or ""):
            yield _unpinned(item, revision, path)


def _unpinned(item: StagePlan, revision: str | None, path: str) -> Finding:
    is_commit = COMMIT.fullmatch(item.revision)
    return warning(
        f"{item.kind.replace('dataset', 'data')}.unpinned",
        f"`{item.repo_id}` is not pinned to a commit" + (f" (`{revision}` may move)" if revision else ""),
        why="the same spec may mean other files tomorrow; "
        + ("the lock pins those of today" if is_commit else "which ones today, only staging can tell"),
        fix=f"set `revision: {item.revision}`" if is_commit else "set `revision` to a commit",
        path=f"{path}.revision" if revision else path,
    )


RULES = (revisions_are_pinned,)
