"""The phase `helpers` on one node: build or take from the cache, link into the run, say what proves them."""

from __future__ import annotations

import sys
from dataclasses import asdict
from pathlib import Path
from typing import Any, Dict, Mapping

from jobspec.plan import Plan
from jobspec.runtime.base import own_folder
from jobspec.runtime.base.identity import NodePaths
from jobspec.runtime.checkouts import mcore_helpers
from jobspec.runtime.node.reporter import Report


def build(plan: Plan, paths: NodePaths, env: Mapping[str, str], report: Report) -> Dict[str, Any]:
    """The reply to the head."""
    if plan.helpers is None:
        return {"findings": []}
    result = mcore_helpers.build(plan.helpers, plan.node_local, sys.executable, report, env)
    if result.folder:
        for entry in Path(result.folder).iterdir():
            own_folder.link(paths.helpers / entry.name, str(entry))
    reply: Dict[str, Any] = {
        "cached": result.cached,
        "library": result.library,
        "findings": [finding.to_json() for finding in result.findings],
    }
    if result.folder:
        reply["proof"] = asdict(result.proof)
    return reply
