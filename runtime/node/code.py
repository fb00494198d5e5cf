"""Reads the checkouts as this node's container sees them, and compares them with what was submitted."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Dict, List, Sequence

from jobspec.finding import Finding, JobspecError, error, warning
from jobspec.plan import RepoPlan
from jobspec.runtime.base.safe_write import write_bytes
from jobspec.runtime.checkouts.code_state import TRUSTED, CodeState, code_state, differences
from jobspec.runtime.checkouts.git import git_state

MAX_NAMED = 8  # files in a finding; results.json has all


def compare(repos: Sequence[RepoPlan], patches: Path) -> Dict[str, Any]:
    """The state of each repository by its name, and findings; `patches` gets what ran under `record`."""
    states: Dict[str, Any] = {}
    findings: List[Finding] = []
    for index, repo in enumerate(repos):
        if not repo.on_change:
            continue
        now = code_state(repo.path, TRUSTED)
        unknown = now.unknown or ("its state at submission is not known" if repo.changes is None else "")
        changed: Sequence[str] = ()
        if not unknown:
            try:
                changed = differences(repo.commit, repo.changes or {}, now, repo.path)
            except JobspecError as problem:
                unknown = problem.findings[0].what
        states[repo.name] = {
            "commit": now.commit,
            "branch": now.branch,
            "uncommitted": sorted(now.changes),
            "uncommitted_sha256": now.changes_sha256,
            "changed": list(changed),
            "unknown": unknown,
        }
        where = f"repos[{index}]"
        if unknown:
            findings.append(_cannot_tell(repo, unknown, where))
        elif changed or now.commit != repo.commit:
            findings.append(_changed(repo, now, changed, where))
            if repo.on_change == "record":
                try:
                    states[repo.name]["patch"] = _save_patch(repo, patches)
                except JobspecError as problem:
                    findings.append(_cannot_tell(repo, problem.findings[0].what, where))
    return {"code": states, "findings": [finding.to_json() for finding in findings]}


def _save_patch(repo: RepoPlan, patches: Path) -> str:
    """The name of the file that has what is not committed now; empty where all is."""
    diff = git_state(repo.path, TRUSTED).diff
    if not diff:
        return ""
    write_bytes(patches / f"{repo.name}.diff", diff)
    return f"{patches.name}/{repo.name}.diff"


def _changed(repo: RepoPlan, now: CodeState, names: Sequence[str], where: str) -> Finding:
    shown = ", ".join(names[:MAX_NAMED]) + (" and more" if len(names) > MAX_NAMED else "")
    files = f"{len(names)} file{'' if len(names) == 1 else 's'}" + (f" ({shown})" if names else "")
    moved = (
        f"it is at {now.commit[:12]} now, and was at {repo.commit[:12]}; "
        if now.commit != repo.commit
        else ""
    )
    what = f"`{repo.name}` changed after submission: {files}"
    if repo.on_change == "record":
        why = f"{moved}`changed: record` lets the run go on, and results.json has what runs"
        return warning("code.changed", what, why, "submit again to have it in the lock", path=where)
    return error(
        "code.changed",
        what,
        f"{moved}the run would use other code than its lock says",
        "submit again, or restore the files; `changed: record` lets a run go on and records what ran",
        path=where,
    )


def _cannot_tell(repo: RepoPlan, why: str, where: str) -> Finding:
    return warning(
        "code.unknown",
        f"which code of `{repo.name}` runs cannot be told",
        why,
        "install git in the image, and mount the whole checkout with its `.git`",
        path=where,
    )
