"""The report as JSON: versioned, described by `report.schema.json`."""

from __future__ import annotations

import json
import math
from dataclasses import asdict
from typing import Any

from jobspec.evidence.evidence import RanCode
from jobspec.evidence.tracker_files import TrackerFiles
from jobspec.metrics.envelope import FEW_POINTS, envelope
from jobspec.plan import ContainerPlan, RepoPlan
from jobspec.report.content import Curve, Report
from jobspec.report.summary import render_summary
from jobspec.verdict import Cause, EvidenceItem

REPORT_VERSION = 1


def render_json(report: Report) -> str:
    """Strict JSON: a number that is not finite is written as null."""
    return json.dumps(_strict(report_data(report)), indent=2, ensure_ascii=False, allow_nan=False) + "\n"


def report_data(report: Report) -> dict[str, Any]:
    """Plain data of the report. Keys are only ever added within a version."""
    verdict = report.verdict
    return {
        "version": REPORT_VERSION,
        "result": str(verdict.result),
        "exit_code": verdict.exit_code,
        "level": verdict.level,
        "number": verdict.number,
        "variants": list(report.variants),
        "summary": render_summary(report),
        "reason": verdict.reason,
        "run": _run(report),
        "deliverables": {
            item.name: {
                "status": str(item.status),
                "required": item.required,
                "reason": item.reason,
                "evidence": [_evidence(part) for part in item.evidence],
            }
            for item in verdict.deliverables
        },
        "figures": [asdict(figure) for figure in verdict.figures],
        "first_cause": None if verdict.first_cause is None else _cause(verdict.first_cause),
        "driver_log": None if report.driver_log is None else asdict(report.driver_log),
        "limitations": list(verdict.limitations),
        "findings": [finding.to_json() for finding in verdict.findings],
        "attempts": [asdict(attempt) for attempt in verdict.attempts],
        "phases": [asdict(bar) for bar in report.bars],
        "curves": [_curve(curve) for curve in report.curves],
        **({} if verdict.reproduction is None else {"reproduction": asdict(verdict.reproduction)}),
        **({"trackers": [_tracker(item) for item in report.trackers]} if report.trackers else {}),
        "provenance": _provenance(report),
        "environment": _environment(report),
    }


def _run(report: Report) -> dict[str, Any]:
    groups = [{key: getattr(g, key) for key in ("name", "nodes", "gpus_per_node")} for g in report.groups]
    return {
        "id": report.run_id,
        "name": report.name,
        "folder": report.folder,
        "framework": report.framework,
        "cluster": report.cluster,
        "mode": report.mode,
        "nodes": report.nodes_planned,
        "gpus_per_node": report.gpus_per_node,
        **({"groups": groups} if groups else {}),
        "start": report.start,
        "end": report.end,
        "scheduler": {"state": report.scheduler_state, "reason": report.scheduler_reason},
    }


def _tracker(item: TrackerFiles) -> dict[str, str]:
    return {key: text for key, text in asdict(item).items() if text or key != "url"}


def _evidence(item: EvidenceItem) -> dict[str, Any]:
    return {key: value for key, value in asdict(item).items() if value not in ("", 0, None) or key == "file"}


def _cause(cause: Cause) -> dict[str, Any]:
    data = asdict(cause)
    data["class"] = data.pop("kind")
    data["verdict"] = str(cause.verdict)
    return data


def _curve(curve: Curve) -> dict[str, Any]:
    """The curve with the points of its picture; the metric files have all of them."""
    points, beside = (envelope(part, FEW_POINTS) for part in (curve.points, curve.beside))
    return {**vars(curve), "points": points, "beside": beside}


def _image(container: ContainerPlan) -> dict[str, str]:
    digest, tag = container.digest, container.source_tag
    return {"image": container.image, "image_digest": digest, "source_tag": tag}


def _provenance(report: Report) -> dict[str, Any]:
    of_services = {name: _image(one) for name, one in report.service_containers.items()}
    return {
        "jobspec": report.jobspec_version,
        "plan_sha256": report.plan_sha256,
        **_image(report.container),
        "container_runtime": report.container.runtime,
        **({"service_images": of_services} if of_services else {}),
        "repos": [_repo(repo, report.ran.get(repo.name)) for repo in report.repos],
        "inputs": [
            {
                "name": item.name,
                "kind": item.kind,
                "id": item.repo_id,
                "revision": item.revision,
                "source": item.source,
            }
            for item in report.inputs
        ],
        "imports": [{"module": module, "node": node, "file": file} for module, node, file in report.imports],
    }


def _repo(repo: RepoPlan, ran: RanCode | None) -> dict[str, Any]:
    """The repository as submitted, and below `ran` as it was when the attempt started."""
    data = asdict(repo)
    data["changes"] = sorted(repo.changes or ())
    return {**data, "ran": None if ran is None else asdict(ran)}


def _environment(report: Report) -> dict[str, Any]:
    return {
        "nodes": [asdict(node) for node in report.nodes],
        "variables": dict(report.env),
        "secrets": list(report.secrets),
        "commands": [{"name": name, "ended": ended} for name, ended in report.commands],
        "artifacts": {"files": report.artifacts, "bytes": report.artifact_bytes},
        "checkpoints": list(report.checkpoints),
    }


def _strict(value: Any) -> Any:
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict):
        return {str(key): _strict(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_strict(item) for item in value]
    return value
