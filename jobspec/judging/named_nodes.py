"""The nodes that a run's files name as broken: each with the line, and what keeps the next runs off it.

A node goes on the user's list by itself only for what no program, image or setting causes, for a day. For
anything else there is a command for the user to run.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from jobspec.evidence.evidence import Attempt, Evidence
from jobspec.finding import Finding, warning
from jobspec.runs.avoided import DAY, NODE, Avoided
from jobspec.runtime.base.node_faults import KINDS, Named, decide, of_findings, own_logs, scan
from jobspec.runtime.base.run_files import read_lines
from jobspec.units import is_date, utc
from jobspec.verdict import NAMED

WITHOUT = "requeue.without"  # the head's finding that the next attempt is asked for without a node


@dataclass(frozen=True)
class NamedNode:
    """A broken node, the attempt that names it, and until when it is avoided."""

    node: str
    named: Named
    attempt: int
    until: float
    left_out: bool  # of the next attempt
    automatic: bool

    def entry(self, evidence: Evidence) -> Avoided:
        named = self.named
        return Avoided(
            self.node, evidence.plan.cluster, self.until, KINDS[named.kind], evidence.run_id, self.attempt,
            named.file, named.line, named.text, max(0.0, self.until - DAY),
        )  # fmt: skip


def named_nodes(evidence: Evidence) -> tuple[NamedNode, ...]:
    """The nodes of all attempts that did not end well; of a node the last word."""
    plan = evidence.plan
    if evidence.foreign or plan.scheduler != "slurm" or not plan.cluster:
        return ()
    found: dict[str, NamedNode] = {}
    for attempt in evidence.attempts:
        if attempt.results is None or attempt.results.outcome in ("ok", "cancelled"):
            continue
        left_out = {finding.node for finding in attempt.findings if finding.rule == WITHOUT}
        ended = max((event.time for event in attempt.events if is_date(event.time)), default=0.0)
        for named in decide([*_named(evidence, attempt)], max(plan.nodes, 1)):
            if NODE.fullmatch(named.node):
                until = ended + DAY if ended else 0.0
                by_itself = named.sure and bool(ended) and plan.slurm.avoid_listed
                left = named.node in left_out and attempt is not evidence.attempts[-1]
                found[named.node] = NamedNode(named.node, named, attempt.number, until, left, by_itself)
    return tuple(found[node] for node in sorted(found))


def node_findings(evidence: Evidence) -> Iterator[Finding]:
    """A warning for each such node: the line, and what keeps the user's next runs off it."""
    cluster = evidence.plan.cluster
    for found in named_nodes(evidence):
        named = found.named
        fix = f"`jobspec nodes add {found.node} --run {evidence.run_id}` keeps your runs off it for a day"
        if found.automatic:
            fix = (
                f"your runs on `{cluster}` keep off it until {utc(found.until)}; "
                f"`jobspec nodes remove {found.node} --cluster {cluster}` ends that"
            )
        why = named.text + ("; the next attempt was asked for without it" if found.left_out else "")
        what = f"attempt {found.attempt} names `{found.node}` for {KINDS[named.kind]}"
        place = {"file": named.file, "line": named.line}
        yield warning(NAMED, what, why, f"{fix}; tell the site", node=found.node, **place)


def _named(evidence: Evidence, attempt: Attempt) -> Iterator[Named]:
    yield from of_findings((item.rule, item.node, item.what) for item in attempt.findings)
    nodes = _roster(attempt)
    of_node = own_logs(evidence.plan)
    only = next(iter(nodes)) if len(nodes) == 1 == evidence.plan.nodes else ""
    told = {match.file for match in attempt.matches} - attempt.side_logs
    for log in attempt.logs:
        if log.path not in told or (log.node == "" and len(evidence.attempts) > 1):
            continue  # all attempts share the batch script's log
        trained = max((m.line for m in attempt.matches if m.file == log.path and m.trained_on), default=0)
        own = only or (log.node if of_node else "")
        try:
            lines = read_lines(evidence.root / log.path)
            yield from (one for one in scan(lines, log.path, own, nodes) if one.line > trained)
        except OSError:  # gone since it was read
            continue


def _roster(attempt: Attempt) -> Mapping[str, str]:
    """The attempt's nodes with their addresses."""
    results = attempt.results
    return {node.name: node.ip for node in results.nodes} if results is not None else {}
