"""`submit --dry-run`: everything up to the scheduler, shown, for a spec and for a rendered folder."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from jobspec import launchers, pipeline
from jobspec.cli import output, plan_picture
from jobspec.cli.boundary import USAGE
from jobspec.finding import allow
from jobspec.runtime.staging.shared import inspect

if TYPE_CHECKING:
    from jobspec.finding import Finding
    from jobspec.planning.resolve import Resolved


def dry_run(request: pipeline.Request, as_json: bool) -> int:
    """Print the plan, what it costs, what is staged where, what the queue says, and the batch script."""
    resolved, findings, script, points = _rendered(request)
    plan, kind = resolved.ready_plan, resolved.spec.resources.gpu_type or ""
    items = () if resolved.remote else inspect(plan)
    forecast = launchers.foresee(plan, resolved.cluster.profile, script)
    findings = (*findings, *allow(forecast.findings() if forecast else (), request.allow))
    refused = any(item.is_error for item in findings)
    rows = plan_picture.node_rows(plan, kind, resolved.spec.pipelines)
    if as_json:
        picture = plan_picture.as_json(plan, rows, items)
        asked = forecast.to_json() if forecast else None
        data = {"ok": not refused, "job_sbatch": script, "points": points, "plan": picture}
        told = [item.to_json() for item in findings]
        output.print_json({**data, "forecast": asked, "findings": told})
        return USAGE if refused else 0
    output.print_findings(findings)
    print(script, end="")
    print(f"# nothing was submitted{f'; {points} points' if points else ''}\n")
    level = f", level {plan.expect.level}" if plan.expect.level else ""
    print(f"{plan.name}: {plan.framework}{level}, on {plan.cluster}")
    output.print_table(plan_picture.HEADER, rows)
    shape = resolved.training.shape if resolved.training else None
    lines = [*plan_picture.use_rows(shape), *plan_picture.cost_rows(plan, kind, points)]
    lines += plan_picture.stage_rows(plan, items)
    lines += plan_picture.queue_rows(forecast, plan) if forecast else []
    print()
    for name, text in lines:
        print(f"{name:<16}{text}")
    return USAGE if refused else 0


def _rendered(request: pipeline.Request) -> tuple[Resolved, tuple[Finding, ...], str, int]:
    """The resolved spec, findings, the batch script and the number of points; nothing is left on disk."""
    import tempfile

    from jobspec.finding import stop_on_errors

    if Path(request.spec).is_dir():
        run, request = pipeline.of_folder(request)
        stop_on_errors(pipeline.damaged_folder(run))
        resolved = pipeline.must_be_ready(request)
        return resolved, resolved.findings, run.job.read_text(encoding="utf-8"), len(run.points())
    resolved = pipeline.must_be_ready(request)
    with tempfile.TemporaryDirectory(prefix="jobspec-dry-run-") as folder:
        rendered = pipeline.render_resolved(resolved, request, Path(folder) / "run")
        script = rendered.run.job.read_text(encoding="utf-8").replace(str(rendered.run.root), "RUN_DIR")
        return resolved, rendered.findings, script, len(rendered.run.points())
