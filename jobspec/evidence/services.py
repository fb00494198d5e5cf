"""The deliverable of each service: ready on all its nodes, and alive until the run ended it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from jobspec.evidence.evidence import Attempt, Evidence, Results, ServiceResult
from jobspec.plan import ServicePlan
from jobspec.verdict import Deliverable, EvidenceItem, Status
from jobspec.words import some

NAME = "Service {}"
NOT_OURS = "an earlier phase stopped the run"
HOW = {"tcp": "its port accepted", "http": "GET {} answered {}", "log": "its log matched `{}`"}


def service_deliverables(evidence: Evidence, attempt: Attempt) -> Iterator[Deliverable]:
    """One for each service of the plan, in order. One that is not required limits what a pass says."""
    for service in evidence.plan.services:
        item = _deliverable(service, attempt)
        if not service.required:
            item = replace(item, required=False)
            if item.status is Status.BLOCKED:  # of no weight, but what it was for is not proved
                limit = f"service `{service.name}` was not there all the time: {item.reason}"
                item = replace(item, status=Status.SKIPPED, limits=(limit,))
        yield item


def _deliverable(service: ServicePlan, attempt: Attempt) -> Deliverable:
    name, results = NAME.format(service.name), attempt.results
    if not attempt.started("services"):
        if said := _said(service, attempt):  # its container did not start
            return Deliverable(name, Status.BLOCKED, reason=said)
        ended_well = results is not None and results.outcome == "ok"
        reason = "no event shows phase `services`" if ended_well else NOT_OURS
        return Deliverable(name, Status.BLOCKED if ended_well else Status.SKIPPED, reason=reason)
    if results is None:
        return Deliverable(
            name, Status.BLOCKED, reason="`results.json` is missing: nothing says how it ended"
        )
    rows = [row for row in results.services if row.name == service.name]
    items = tuple(EvidenceItem(row.log or results.file, text=_told(row)) for row in rows)
    bad = next((row for row in rows if row.state != "stopped"), None)
    if bad is not None:
        return Deliverable(name, Status.BLOCKED, items, f"{bad.node}: {_told(bad)}")
    if len(rows) < len(service.nodes):
        return _absent(name, service, attempt, results, items)
    times = max(row.ready_s or 0.0 for row in rows)
    how = HOW[service.ready.kind].format(service.ready.text, service.ready.status)
    where = some([row.node for row in rows], 3)
    reason = f"ready on {where} after {times:.1f} s ({how}), and alive until the run ended it"
    return Deliverable(name, Status.PASS, items, reason)


def _absent(
    name: str, service: ServicePlan, attempt: Attempt, results: Results, items: tuple[EvidenceItem, ...]
) -> Deliverable:
    """Fewer of its processes are recorded than it has nodes."""
    if said := _said(service, attempt):
        return Deliverable(name, Status.BLOCKED, items, said)
    if results.outcome != "ok":
        return Deliverable(name, Status.SKIPPED, items, "the run ended before it was started everywhere")
    return Deliverable(name, Status.BLOCKED, items, "nothing says that it was started on all its nodes")


def _said(service: ServicePlan, attempt: Attempt) -> str:
    """What a finding says of the service; empty without one."""
    about = f"service `{service.name}`"
    said = next((f for f in attempt.findings if f.rule.startswith("service.") and about in f.what), None)
    return f"{said.node}: {said.what}".removeprefix(": ") if said is not None else ""


def _told(row: ServiceResult) -> str:
    """How it ended, in words."""
    ready = f"ready after {row.ready_s:.1f} s" if row.ready_s is not None else "never ready"
    code = f" with {row.exit_code}" if row.exit_code is not None else ""
    return {
        "stopped": f"{ready}, ended by the run",
        "died": f"{ready}, and ended by itself{code} while the run needed it",
        "failed": ready,
        "ready": f"{ready}, and nothing says how it ended",
    }.get(row.state, "it was being started when the run ended")
