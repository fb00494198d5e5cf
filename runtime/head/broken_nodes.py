"""Which nodes an attempt that failed names as broken, for the next attempt to do without."""

from __future__ import annotations

import contextlib
import time
from pathlib import Path
from typing import Iterator, List

from jobspec.finding import Finding, warning
from jobspec.runtime.base.node_faults import KINDS, Named, decide, of_findings, own_logs, scan
from jobspec.runtime.base.run_files import read_lines
from jobspec.runtime.head.attempt import Attempt
from jobspec.runtime.head.record import BLOCKED, FAILED

BUDGET_S = 5.0  # for all logs: Slurm, or a lost node, may soon end this step
OURS = ("agent.log", "ray.log", "ray-probe.log")


def broken_nodes(attempt: Attempt) -> List[Named]:
    """The nodes that findings and logs name; none of a run that was cancelled or had no time left."""
    if attempt.cause is None or attempt.cause.outcome not in (BLOCKED, FAILED):
        return []
    rows = [(finding.rule, finding.node, finding.what) for finding in attempt.record.findings]
    return decide([*of_findings(rows), *_in_logs(attempt)], attempt.plan.nodes)


def left_out(broken: Named) -> Finding:
    return warning(
        "requeue.without",
        f"the next attempt is asked for without `{broken.node}`, named for {KINDS[broken.kind]}",
        broken.text,
        "tell the site",
        node=broken.node,
        file=broken.file,
        line=broken.line,
    )


def _in_logs(attempt: Attempt) -> Iterator[Named]:
    nodes = {str(row["name"]): str(row["ip"] or "") for row in attempt.record.nodes}
    folder, of_node, end = attempt.node.paths.attempt, own_logs(attempt.plan), time.monotonic() + BUDGET_S
    with contextlib.suppress(OSError):
        for path in sorted(folder.glob("logs/*/*.log")):
            name = path.parent.name
            if name in nodes and path.name not in OURS and not path.name.startswith("checks-"):
                lines = _until(end, path)
                yield from scan(lines, str(path.relative_to(folder)), name if of_node else "", nodes)


def _until(end: float, path: Path) -> Iterator[bytes]:
    for number, line in enumerate(read_lines(path)):
        if number % 1000 == 0 and time.monotonic() > end:
            return
        yield line
