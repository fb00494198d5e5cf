"""What a run of several pipelines proves: each by itself, then how they shared the GPUs.

Neither an exit code nor a return is proof. The driver ends with 0 unless every pipeline failed. A pipeline
whose training loop broke returns all the same, since NeMo-RL prints the error and goes on. What proves a
pipeline are the steps that it logged, and the lines in which it gave and took GPUs.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import combinations
from pathlib import Path
from typing import TYPE_CHECKING

from jobspec.evidence.deliverables import metrics_deliverable
from jobspec.evidence.read import read_checkpoints
from jobspec.frameworks.rlix.driver_log import Line, PipelineSeen, Seen, names, overlap, see
from jobspec.frameworks.shared.metric_deliverables import (
    LEARNING,
    TRAINING,
    learning_deliverable,
    missing_status,
    training_deliverable,
)
from jobspec.metrics.table import Table, only
from jobspec.plan import PartPlan
from jobspec.verdict import Deliverable, EvidenceItem, Status

if TYPE_CHECKING:
    from jobspec.evidence.evidence import Evidence

TOTAL, SHARED, TRACE = "Pipelines", "GPUs shared between pipelines", "GPU trace"
COMPARED, VERIFY = "Weights compared", "verify"  # the key in the plan: names of pipelines that ask for it
REWARD, LOSS, GRAD = "train/reward", "train/loss", "train/grad_norm"
METRIC_KEYS = {"reward": REWARD, "loss": LOSS, "grad norm": GRAD}
TRACE_SUFFIX = ".perfetto-trace"


def judge(evidence: Evidence) -> Iterator[Deliverable]:
    """Each pipeline's deliverables, then those about all pipelines."""
    seen = see(evidence)
    parts = {part.name: part for part in evidence.plan.expect.parts}
    pipelines = list(names(seen, tuple(parts)))
    for name, pipeline in pipelines:
        yield from judge_pipeline(evidence, parts.get(name) or _foreign_part(evidence, name), pipeline, seen)
    # After the pipelines: the cause in one pipeline says more than the total.
    counted = seen.successes + seen.failures if evidence.foreign else 0  # its logs may name fewer
    yield judge_total(seen, max(len(pipelines), counted), missing_status(evidence))
    yield from judge_compared(evidence, seen, pipelines)
    if len(pipelines) > 1 or evidence.plan.expect.level == "multi":
        yield judge_shared(evidence, pipelines)
    if evidence.plan.expect.learning is not None:
        yield learning_deliverable(evidence)  # of a metric of the whole run, `NAME/train/reward`
    if "trace" in evidence.plan.expect.variants:
        yield judge_trace(evidence)


def judge_total(seen: Seen, planned: int, lost: Status = Status.FAIL) -> Deliverable:
    """`Pass` when the driver says in its last line that every pipeline succeeded."""
    if seen.shutdown is not None:
        reason = f"RLix was told to stop Ray for all pipelines: {seen.reason}"
        return Deliverable(TOTAL, Status.FAIL, (seen.shutdown.item,), reason)
    if seen.broke is not None:
        reason = (
            f"jobspec ended the run: `{seen.broken}` broke before its first train step, "
            "and others wait for that step"
        )
        return Deliverable(TOTAL, Status.FAIL, (seen.broke.item,), reason)
    if seen.done is None:
        return Deliverable(TOTAL, lost, reason="the driver's last line, `done!!!`, was not found")
    good, bad = seen.successes, seen.failures
    reason = f"{good} of {planned} pipelines returned"
    status = Status.PASS if not bad and good == planned and planned else Status.FAIL
    return Deliverable(TOTAL, status, (seen.done.item,), reason)


def judge_pipeline(
    evidence: Evidence, part: PartPlan, pipeline: PipelineSeen, seen: Seen
) -> Iterator[Deliverable]:
    own = _own(evidence, part, alone=len(seen.pipelines) == 1)
    lost = missing_status(evidence)
    yield judge_end(part, pipeline, seen, lost)
    if evidence.plan.expect.parts or own.metrics.series(REWARD):
        trained = training_deliverable(own, REWARD)
        yield replace(trained, name=f"{part.name}: {trained.name}")
    else:
        reason = "not shown: jobspec read no metrics that are known to be this pipeline's"
        yield Deliverable(f"{part.name}: {TRAINING}", Status.BLOCKED, reason=reason)
    yield judge_versions(part, pipeline, _first_step(own), lost)
    yield judge_sharing(part, pipeline, lost)
    if part.metrics_require:
        required = metrics_deliverable(own, finished=True)
        yield replace(required, name=f"{part.name}: {required.name}")
    if part.learning is not None:
        yield replace(learning_deliverable(own), name=f"{part.name}: {LEARNING}")
    if evidence.plan.expect.checkpoint:
        yield judge_checkpoint(evidence, part)


def _first_step(own: Evidence) -> int | None:
    """The first train step that the last attempt logged, counted from 0 as RLix does; NeMo-RL begins at 1."""
    rows = own.last.metrics.series(REWARD) if own.last is not None else ()
    return min((row.step - 1 for row in rows if row.step), default=None)


def _own(evidence: Evidence, part: PartPlan, alone: bool) -> Evidence:
    """The evidence as if this pipeline were the whole run, its metrics named as it logs them."""
    expect = replace(
        evidence.plan.expect,
        steps=part.steps,
        metrics_require=part.metrics_require,
        learning=part.learning,
        metric_keys=METRIC_KEYS,
    )
    return replace(
        evidence,
        plan=replace(evidence.plan, expect=expect),
        attempts=tuple(
            replace(attempt, metrics=_own_metrics(evidence, attempt.metrics, part.name, alone))
            for attempt in evidence.attempts
        ),
    )


def _own_metrics(evidence: Evidence, table: Table, name: str, alone: bool) -> Table:
    """The pipeline's metrics: by their prefix, or in files of others by the path that names it.

    Those of a pipeline that ran alone are its own wherever they lie.
    """
    own = only(table, f"{name}/")
    if len(own) or evidence.plan.expect.parts or not name:
        return own
    return Table(tuple(row for row in table.rows if alone or name in row.source))


def _foreign_part(evidence: Evidence, name: str) -> PartPlan:
    return PartPlan(name, evidence.plan.expect.steps)


def judge_end(part: PartPlan, pipeline: PipelineSeen, seen: Seen, lost: Status = Status.FAIL) -> Deliverable:
    """`Pass` when the pipeline returned and its training loop reported no error."""
    name = f"{part.name}: Run"
    if pipeline.raised is not None:
        return Deliverable(
            name, Status.FAIL, (pipeline.raised.item,), f"the pipeline raised {pipeline.error}"
        )
    if pipeline.swallowed is not None:
        reason = f"the pipeline returned, but its training loop broke: {pipeline.swallowed_text}"
        return Deliverable(name, Status.FAIL, (pipeline.swallowed.item,), reason)
    if seen.broke is not None and seen.broken == part.name:
        reason = f"the pipeline broke before its first train step: {seen.broken_why}"
        return Deliverable(name, Status.FAIL, (seen.broke.item,), reason)
    if pipeline.returned is None and seen.broke is not None:
        reason = f"the run ended before the pipeline returned, since `{seen.broken}` broke"
        return Deliverable(name, Status.FAIL, (seen.broke.item,), reason)
    if pipeline.returned is None:
        begun = (
            "jobspec found no line that names the pipeline"
            if not pipeline.id
            else "the pipeline's end is not in the log"
        )
        reason = f"{begun}: RLix stopped Ray ({seen.reason})" if seen.shutdown is not None else begun
        status = Status.FAIL if seen.shutdown is not None else lost
        return Deliverable(name, status, _last_item(pipeline), reason)
    return Deliverable(name, Status.PASS, (pipeline.returned.item,), f"`{pipeline.id}` returned")


def _last_item(pipeline: PipelineSeen) -> tuple[EvidenceItem, ...]:
    lines = [*pipeline.before.values(), *pipeline.after.values(), *pipeline.shrinks, *pipeline.expands]
    return (max(lines, key=lambda line: line.at).item,) if lines else ()


def judge_versions(
    part: PartPlan, pipeline: PipelineSeen, first: int | None = None, lost: Status = Status.FAIL
) -> Deliverable:
    """`Pass` when each step published weights of its own number, before the next step began.

    `first` is the first step among the metrics, counted from 0: a resumed run begins later.
    """
    name = f"{part.name}: Weight version"
    before, after = pipeline.steps
    if not after:
        return Deliverable(
            name, lost, reason="jobspec found no line that shows that a train step published weights"
        )
    steps = sorted(after)
    begin = steps[0] if first is None else min(first, steps[0])
    missing = next((s for s in range(begin, part.steps or steps[-1] + 1) if s not in after), None)
    if missing is not None:
        reason = (
            f"jobspec found no line that shows that train step {missing}, counted from 0, published weights"
        )
        return Deliverable(name, lost, (after[steps[-1]].item,), reason)
    # RLix calls the weights after step N version N or, since May 2026, N + 1; one run has one convention.
    ahead = after[steps[0]].version - steps[0]
    wrong = next((s for s in steps if after[s].version != s + ahead or ahead not in (0, 1)), None)
    if wrong is not None:
        reason = f"train step {wrong}, counted from 0, published version {after[wrong].version}"
        return Deliverable(name, Status.FAIL, (after[wrong].item,), reason)
    return _in_turn(name, steps, before, after)


def _in_turn(name: str, steps: list[int], before: dict[int, Line], after: dict[int, Line]) -> Deliverable:
    """`Pass` when the order of lines shows each step after the weights of the step before."""
    unknown = next((s for s in steps if s not in before), None)
    if unknown is not None:
        reason = f"jobspec found no line that shows when train step {unknown}, counted from 0, got its GPUs"
        return Deliverable(name, Status.FAIL, (after[unknown].item,), reason)
    for step in steps[:-1]:
        granted, published = before[step + 1], after[step]
        if granted.item.file == published.item.file and granted.at < published.at:
            reason = (
                f"train step {step + 1}, counted from 0, began before step {step} had published its weights"
            )
            return Deliverable(name, Status.FAIL, (granted.item, published.item), reason)
    first, last = after[steps[0]], after[steps[-1]]
    reason = (
        f"{len(steps)} train steps published versions {first.version} to {last.version}, each in its turn"
    )
    return Deliverable(name, Status.PASS, (first.item, last.item), reason)


def judge_sharing(part: PartPlan, pipeline: PipelineSeen, lost: Status = Status.FAIL) -> Deliverable:
    """`Pass` when engines gave GPUs up for training, and took them back with weights of a later step."""
    name = f"{part.name}: GPU time-sharing"
    if pipeline.failed_expand is not None:
        reason = "RLix says that waking engines, or giving them weights, failed"
        return Deliverable(name, Status.FAIL, (pipeline.failed_expand.item,), reason)
    if not pipeline.shrinks:
        return Deliverable(
            name, lost, reason="jobspec found no line that shows an engine that was put to sleep"
        )
    first = min(pipeline.after.values(), key=lambda line: line.at, default=None)
    woken = [line for line in pipeline.expands if first is not None and line.at > first.at]
    if first is None or not woken:
        reason = "jobspec found no line that shows an engine that was woken after a train step"
        return Deliverable(name, lost, (pipeline.shrinks[0].item,), reason)
    if max(line.version for line in woken) < first.version:
        reason = (
            f"engines woke with weights of version {woken[-1].version}, older than the first train step's"
        )
        return Deliverable(name, Status.FAIL, (first.item, woken[-1].item), reason)
    reason = (
        f"engines were told to sleep {len(pipeline.shrinks)} times, and woke {len(woken)} times after a "
        f"train step, with weights of version {woken[-1].version} at last"
    )
    return Deliverable(name, Status.PASS, (pipeline.shrinks[0].item, woken[-1].item), reason)


def judge_checkpoint(evidence: Evidence, part: PartPlan) -> Deliverable:
    """`Pass` when the folder of the last planned step is there; NeMo-RL renames only a complete one."""
    name = f"{part.name}: Checkpoint"
    folder = Path(evidence.plan.checkpoint_dir or evidence.root / "checkpoints", part.name)
    checkpoints = read_checkpoints(folder)
    if not checkpoints and evidence.foreign:  # their folders have names of their own
        reason = "not shown: jobspec found no checkpoint that is known to be this pipeline's"
        return Deliverable(name, Status.BLOCKED, reason=reason)
    if not checkpoints:
        return Deliverable(name, Status.FAIL, reason=f"`{folder}` has no complete checkpoint")
    last = checkpoints[-1]
    item = EvidenceItem(last.path, text=f"{len(last.files)} files")
    if last.step != part.steps:
        reason = f"the last complete checkpoint is of step {last.step}, not of step {part.steps}"
        return Deliverable(name, Status.FAIL, (item,), reason)
    return Deliverable(name, Status.PASS, (item,), f"complete up to step {last.step}")


def judge_compared(
    evidence: Evidence, seen: Seen, pipelines: list[tuple[str, PipelineSeen]]
) -> Iterator[Deliverable]:
    """RLix's comparison of a few numbers of all weights after a transfer, where one is asked for or shown."""
    asked = str(evidence.plan.expect.options.get(VERIFY, "")).split(",")
    shown = [(name, seen.equal[one.id].item) for name, one in pipelines if one.id in seen.equal]
    if seen.unequal is not None:
        reason = f"engines had other weights than the trainer: {seen.unequal_text}"
        yield Deliverable(COMPARED, Status.FAIL, (seen.unequal.item,), reason)
    elif shown and {name for name, _ in shown}.issuperset(filter(None, asked)):
        reason = "sum, largest and smallest weight were those of the trainer"
        yield Deliverable(COMPARED, Status.PASS, tuple(item for _, item in shown[:2]), reason, required=False)
    elif any(asked):
        reason = "jobspec found no line of a comparison, of which RLix prints only differences for NeMo-RL"
        yield Deliverable(COMPARED, Status.SKIPPED, reason=reason, required=False)


def judge_shared(evidence: Evidence, pipelines: list[tuple[str, PipelineSeen]]) -> Deliverable:
    """`Pass` when every pipeline trained while another one was under way."""
    required = evidence.plan.expect.level != "smoke"
    alone, items = {name for name, _ in pipelines}, list[EvidenceItem]()
    for (name, pipeline), (other_name, other) in combinations(pipelines, 2):
        both = overlap(pipeline, other)
        if both is not None:
            alone -= {name, other_name}
            items += [line.item for line in both]
    if len(pipelines) < 2:
        reason = f"jobspec read {'one pipeline alone' if pipelines else 'no pipeline'} in the logs"
        return Deliverable(SHARED, missing_status(evidence), reason=reason, required=required)
    if alone:
        which = next(name for name, _ in pipelines if name in alone)
        reason = f"jobspec found no line that shows `{which}` train while another pipeline was under way"
        return Deliverable(SHARED, missing_status(evidence), tuple(items[:2]), reason, required)
    reason = f"each of {len(pipelines)} pipelines trained while another one was under way"
    return Deliverable(SHARED, Status.PASS, tuple(items[:2]), reason, required)


def judge_trace(evidence: Evidence) -> Deliverable:
    """`Pass` when the scheduler's time line of GPUs was written and brought home."""
    traces = [item for item in evidence.artifacts if item.path.endswith(TRACE_SUFFIX) and item.present]
    if not traces:
        why = "RLix writes one only where the package `tg4perfetto` is installed"
        return Deliverable(TRACE, Status.FAIL, reason=f"no `*{TRACE_SUFFIX}` was collected: {why}")
    if not any(item.bytes for item in traces):
        return Deliverable(TRACE, Status.FAIL, reason=f"`{traces[0].path}` is empty")
    largest = max(traces, key=lambda item: item.bytes)
    item = EvidenceItem(f"artifacts/{largest.path}", text=f"{largest.bytes} bytes")
    return Deliverable(TRACE, Status.PASS, (item,), "open it at ui.perfetto.dev")
