"""What a TRL run proves, level by level: judged by the metrics that its driver wrote, and nothing else."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

from jobspec.frameworks.shared.metric_deliverables import (
    CHECKPOINT,
    RESUME,
    learning_deliverable,
    row_item,
    training_deliverable,
)
from jobspec.frameworks.trl.found_resume import PARTS, STATE, filled, judge_found, missing_shard, trained_by
from jobspec.frameworks.trl.listed import only_listed, with_listed
from jobspec.log_search import Hints, find_lines
from jobspec.verdict import Deliverable, EvidenceItem, Status

if TYPE_CHECKING:
    from jobspec.evidence.evidence import Evidence

ANY_ENGINE = "which engine generated is not judged"
NOT_RATED = "jobspec read no `reward`: that a completion was rated is not proved"
SAMPLED = re.compile(r"^(?:train/)?completions?[/_]")
# Source: DeepSpeed `runtime/fp16/loss_scaler.py`, with fp16 alone.
SKIPS = re.compile(r"\bOVERFLOW! Rank \d+ Skipping step\b")


def judge(evidence: Evidence) -> Iterator[Deliverable]:
    """`Training` always; `Checkpoint`, `Resume` and `Learning` where the plan expects them."""
    yield _training(evidence)
    checkpoint = [judge_checkpoint(evidence)] if evidence.plan.expect.checkpoint else []
    resume = [judge_resume(evidence)] if evidence.plan.expect.resume else []
    # A resume that says what to do explains more than files that were not handed in.
    yield from (*resume, *checkpoint) if any(item.fix for item in resume) else (*checkpoint, *resume)
    if evidence.plan.expect.learning is not None:
        yield learning_deliverable(evidence)


def _training(evidence: Evidence) -> Deliverable:
    """By `reward`; of files of others that hold none, as of an SFT or DPO run, by `loss`."""
    metric = trained_by(evidence)
    found = training_deliverable(evidence, metric)
    if not evidence.foreign or not evidence.metrics.series(metric):
        return found
    limits = tuple(_skipped(evidence))
    if evidence.metrics.series("reward"):
        return replace(found, limits=(ANY_ENGINE, *limits))
    # Of SFT, DPO or a reward model nothing is to be rated.
    sampled = any(SAMPLED.search(name) for name in evidence.metrics.metrics)
    return replace(found, limits=(NOT_RATED, *limits) if sampled else (*found.limits, *limits))


def _skipped(evidence: Evidence) -> Iterator[str]:
    """Updates that the loss scaler left out: the trainer counts their steps all the same."""
    for log in evidence.last.logs if evidence.last is not None else ():
        lines = find_lines(evidence.root / log.path, Hints(("Skipping step",)))
        numbers = [line.number for line in lines if SKIPS.search(line.text)]
        if numbers:
            told = "1 line of {} says" if len(numbers) == 1 else f"{len(numbers)} lines of {{}} say"
            yield (
                f"{told.format(log.path)} that DeepSpeed skipped an update for an overflow (the first: line"
                f" {numbers[0]}): such a step counts as one that ran"
            )
            return


def judge_checkpoint(evidence: Evidence) -> Deliverable:
    """`Pass` when the driver marked a checkpoint of the last planned step as complete."""
    rows = evidence.metrics.series("checkpoint/bytes")
    last = evidence.plan.expect.steps
    if not rows and evidence.foreign:
        return _found_checkpoint(evidence)
    if not rows:
        return Deliverable(CHECKPOINT, Status.FAIL, reason="no complete checkpoint was written")
    items = tuple(row_item(row, f"checkpoint of step {row.step}, bytes") for row in rows[-3:])
    if rows[-1].step != last:
        reason = f"the newest complete checkpoint is of step {rows[-1].step}, not of the last step {last}"
        return Deliverable(CHECKPOINT, Status.FAIL, items, reason)
    if not rows[-1].value > 0:
        reason = f"the size of the checkpoint of step {last} was logged as {rows[-1].value:g} bytes"
        return Deliverable(CHECKPOINT, Status.FAIL, items, reason)
    reason = f"{len(rows)} complete checkpoints, the last of step {last} with {rows[-1].value:.0f} bytes"
    return Deliverable(CHECKPOINT, Status.PASS, items, reason)


def _found_checkpoint(evidence: Evidence) -> Deliverable:
    """The newest folder that the Trainer saved, by its files: its state, weights and optimizer."""
    found = [with_listed(evidence, one) for one in evidence.checkpoints]
    saved = [(one, listing) for one, listing in found if STATE in one.files]
    last = evidence.plan.expect.steps
    if not saved:
        reason = f"jobspec found no checkpoint with a `{STATE}`"
        return Deliverable(CHECKPOINT, Status.BLOCKED, reason=reason)
    newest, listing = max(saved, key=lambda one: one[0].step)
    item = EvidenceItem(newest.path, text=f"checkpoint of step {newest.step}, {newest.bytes} bytes")
    files = filled(newest)
    lacks = [what for what, names in PARTS.items() if not any(names.search(file) for file in files)]
    if lacks:
        empty = [file for file in newest.files if file not in files]
        reason = (
            f"the folder given of the checkpoint of step {newest.step} holds no file of {' or '.join(lacks)}"
        )
        reason += f": `{empty[0]}` is empty" if empty else ""
        return Deliverable(CHECKPOINT, Status.BLOCKED, (item,), reason)
    if part := missing_shard(newest):
        reason = f"of the weights of step {newest.step} jobspec found no `{part}`"
        return Deliverable(CHECKPOINT, Status.BLOCKED, (item,), reason)
    told = [what for what, names in PARTS.items() if any(map(names.search, listing.files))]
    told += [f"its `{STATE}`"] if STATE in listing.files else []
    limits = (only_listed(newest, listing),) if told else ()
    lists = f"; `{listing.name}` lists {' and '.join(told)}" if told else ""
    if newest.step < last:
        later = [one.step for one, _ in found if one.step > newest.step]
        reason = f"jobspec found no folder of a checkpoint after step {newest.step} of {last}{lists}"
        if later:
            reason = (
                f"the folder given of step {max(later)} holds no `{STATE}`: the newest checkpoint that has"
                f" one is of step {newest.step} of {last}{lists}"
            )
        return Deliverable(CHECKPOINT, Status.BLOCKED, (item,), reason)
    reason = f"state, weights and optimizer of step {newest.step}{lists}"
    return Deliverable(CHECKPOINT, Status.PASS, (item,), reason, limits=limits)


def judge_resume(evidence: Evidence) -> Deliverable:
    """`Pass` when a new process went on from the planned step with the optimizer's and the random state.

    The driver measures both right after loading: Adam's own step counter equals the checkpoint's step, and
    every rank's random generator equals its saved state. All later steps must have run, up to the last.
    """
    table, planned = evidence.metrics, evidence.plan.expect
    steps = table.series("resume/from_step")
    if not steps:
        if evidence.foreign:
            return judge_found(evidence)
        return Deliverable(
            RESUME, Status.FAIL, reason="no process reported that it continued from a checkpoint"
        )
    start = steps[-1]
    proofs = {name: table.series(f"resume/{name}") for name in ("optimizer_steps", "rng_restored")}
    items = (
        row_item(start, "continued from step"),
        *(row_item(rows[-1], name) for name, rows in proofs.items() if rows),
    )
    problem = _resume_problem(
        evidence, start.value, {name: rows[-1].value for name, rows in proofs.items() if rows}
    )
    if problem:
        return Deliverable(RESUME, Status.FAIL, items, problem)
    span = f"from step {start.value:.0f} to {planned.steps}"
    reason = f"a new process went on {span}, with optimizer and random state"
    return Deliverable(RESUME, Status.PASS, items, reason)


def _resume_problem(evidence: Evidence, start: float, proofs: dict[str, float]) -> str:
    planned = evidence.plan.expect
    resume_from = planned.options.get("resume_from")
    after = {
        row.step for row in evidence.metrics.series("reward") if row.step is not None and row.step > start
    }
    if start != resume_from and not (evidence.foreign and resume_from is None):
        return f"training continued from step {start:.0f}, not from the planned step {resume_from}"
    if proofs.get("optimizer_steps") != start:
        return f"the loaded optimizer had made {proofs.get('optimizer_steps', 0):.0f} steps, not {start:.0f}"
    if proofs.get("rng_restored") != 1:
        return "the random state was not restored on every rank"
    if len(after) != planned.steps - start or max(after, default=planned.steps) > planned.steps:
        return f"only {len(after)} of {planned.steps - int(start):.0f} steps ran after the resume"
    return ""
