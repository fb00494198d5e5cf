"""What a SkyRL run proves: steps by its metrics, the transfer of weights by its log-probabilities.

A resume whose loop never ran leaves no metrics of new steps, so it passes nothing.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator
from pathlib import PurePath
from typing import TYPE_CHECKING

from jobspec.frameworks.shared.metric_deliverables import (
    CHECKPOINT,
    RESUME,
    learning_deliverable,
    missing_status,
    row_item,
    training_deliverable,
)
from jobspec.frameworks.skyrl import locked_versions
from jobspec.log_search import Hints, find_lines
from jobspec.log_text import strip_ansi
from jobspec.verdict import Deliverable, EvidenceItem, Status

if TYPE_CHECKING:
    from jobspec.evidence.evidence import Evidence, LogFile
    from jobspec.metrics import Row

REWARD = "reward/avg_raw_reward"
POLICY = ("policy/final_loss", "policy/policy_loss", "final_loss", "policy_loss", "timing/step")
SYNC, REWARDS = "Weight transfer", "Rewards"
DIFFERENCE = "policy/rollout_train_logprobs_abs_diff_mean"
COMPARES = re.compile(r"rollout_train|rollout_\w*logprobs|log_ratio|/tis/")  # other releases, other losses
LENGTH = "generate/avg_num_tokens"
# Measured between trainer and engines: 0.15 to 0.30 when weights arrive, about 2 when they are mixed up.
# Source: SkyRL pull request 1816, round-trip test.
HEALTHY, BROKEN = 0.3, 1.0
LINES = {
    "marker": re.compile(r"^jobspec: the last complete checkpoint is of step (\d+)\s*$"),
    "saved": re.compile(r"Successfully saved checkpoint for global_step_(\d+) to:"),
    "from": re.compile(r"Resuming from global_step: (\d+)"),
    "loaded": re.compile(r"Successfully loaded complete checkpoint state from global_step_(\d+)"),
}
ZERO_STEPS = 3  # with rewards of exactly 0 and answers that are not empty
MAX_LINES = 400  # kept for each pattern
FIRST_LINES = 200  # of a log, before any program of SkyRL speaks

Found = dict[str, list[tuple[int, EvidenceItem]]]


def judge(evidence: Evidence) -> Iterator[Deliverable]:
    """`Training` and `Weight transfer` always; the others where the plan expects them."""
    yield training_deliverable(evidence, _trained(evidence))
    yield judge_sync(evidence)
    expect = evidence.plan.expect
    lines = read_lines(evidence) if expect.checkpoint or expect.resume else {}
    if messages := packages(evidence):
        yield locked_versions.judge(messages)
    if expect.checkpoint:
        yield judge_checkpoint(evidence, lines)
    if expect.resume:
        yield judge_resume(evidence, lines)
    if expect.learning is not None:
        yield learning_deliverable(evidence)


def judge_sync(evidence: Evidence) -> Deliverable:
    """`Fail` when engines seem to have other weights than the trainer, or no answer earns anything."""
    rows = [row for row in evidence.metrics.series(DIFFERENCE) if row.step is not None]
    bad = next((row for row in rows if not row.value <= BROKEN), None)
    if bad is not None:
        reason = (
            f"trainer and engines differ by {bad.value:.3g} in mean log-probability at step {bad.step}, a"
        )
        reason += f" healthy run by {HEALTHY} or less: as where the engines have other weights"
        return Deliverable(SYNC, Status.FAIL, (row_item(bad),), reason)
    rewards = evidence.metrics.values(REWARD)
    answered = any(value > 0 for value in evidence.metrics.values(LENGTH))
    enough = not evidence.foreign or len(rewards) >= ZERO_STEPS
    if rewards and enough and answered and not any(rewards):
        first = evidence.metrics.series(REWARD)[0]
        reason = (
            f"`{REWARD}` is 0 at all {len(rewards)} logged steps, and the answers are not empty: as where"
        )
        reason += " weights, chat template or reward are wrong, or the data is too hard"
        return Deliverable(REWARDS, Status.FAIL, (row_item(first),), reason)
    if not rows:
        other = next((name for name in evidence.metrics.metrics if COMPARES.search(name)), None)
        left = f"no healthy value of `{other}` is known" if other else "trainer and engines are not compared"
        reason = f"`{DIFFERENCE}` was not found: {left}"
        return Deliverable(SYNC, Status.SKIPPED, reason=reason, required=False)
    worst = max(rows, key=lambda row: row.value)
    word = (
        "as in a healthy run"
        if worst.value <= HEALTHY
        else "more than the 0.3 of healthy runs, at most the 1 that is allowed"
    )
    reason = f"trainer and engines differ by at most {worst.value:.3g} in mean log-probability, {word}"
    return Deliverable(SYNC, Status.PASS, (row_item(worst),), reason)


def _trained(evidence: Evidence) -> str:
    """The metric that shows trained steps: the reward; in files of others the one with the most steps."""
    names = (REWARD, *POLICY) if evidence.foreign else (REWARD,)
    return max(names, key=lambda name: len(evidence.metrics.series(name)))


def judge_checkpoint(evidence: Evidence, lines: Found) -> Deliverable:
    """`Pass` when SkyRL's commit marker, which it writes last, names the last planned step."""
    marked = lines.get("marker") or [
        (item.step, EvidenceItem(item.path))
        for item in evidence.checkpoints
        if evidence.foreign and item.bytes
    ]
    # The trainer says it behind the marker's writing.
    said = not marked and evidence.foreign
    marked = lines.get("saved", []) if said else marked
    last = evidence.plan.expect.steps
    if not marked:
        status = Status.BLOCKED if evidence.foreign else Status.FAIL
        return Deliverable(CHECKPOINT, status, reason="jobspec found no line of a complete checkpoint")
    # Logs of a run that jobspec did not launch are in no order of time; SkyRL's marker only ever goes up.
    step, item = max(marked, key=lambda one: one[0]) if evidence.foreign else marked[-1]
    saved = [line for number, line in lines.get("saved", []) if number == step]
    if step != last:
        reason = f"the last complete checkpoint that is shown is of step {step}, not of the last step {last}"
        return Deliverable(CHECKPOINT, missing_status(evidence), (item,), reason)
    if said:
        reason = f"the trainer says that it saved step {step} whole; jobspec found no files of it"
        return Deliverable(CHECKPOINT, Status.PASS, (item,), reason)
    return Deliverable(CHECKPOINT, Status.PASS, (item, *saved[-1:]), f"complete up to step {step}")


def judge_resume(evidence: Evidence, lines: Found) -> Deliverable:
    """`Pass` when a new process loaded the planned step whole, and logged every step after it."""
    begun, loaded = lines.get("from", []), lines.get("loaded", [])
    planned = evidence.plan.expect
    if not loaded or not (begun or evidence.foreign):
        status = Status.BLOCKED if evidence.foreign else Status.FAIL
        return Deliverable(
            RESUME, status, reason="jobspec found no line that says that a process loaded a whole checkpoint"
        )
    step, item = loaded[-1]
    resume_from = planned.options.get("resume_from") or step
    proofs = (*(line for _, line in begun[-1:]), item)
    if step != resume_from:
        reason = f"a process loaded step {step}, not the planned step {resume_from}"
        return Deliverable(RESUME, Status.FAIL, proofs, reason)
    rows = _rows_of(evidence, item)
    after = {row.step for row in rows if row.step is not None and row.step > step}
    missing = set(range(step + 1, planned.steps + 1)) - after
    if missing or not after:
        reason = f"no metrics of step {min(missing, default=step + 1)} after the resume were read"
        unknown = evidence.foreign and not rows
        return Deliverable(RESUME, Status.BLOCKED if unknown else missing_status(evidence), proofs, reason)
    return Deliverable(RESUME, Status.PASS, proofs, f"a new process went on from step {step} to {max(after)}")


def _rows_of(evidence: Evidence, loaded: EvidenceItem) -> list[Row]:
    """The trained steps; of others' runs without those that an earlier process logged above the line, or in a
    log of its own."""
    rows = evidence.metrics.series(_trained(evidence))
    logs = {log.path for log in evidence.last.logs} if evidence.foreign and evidence.last else set[str]()
    own = [row for row in rows if row.source == loaded.file and (row.line or 0) > loaded.line]
    return [row for row in rows if row.source not in logs] + own


def read_lines(evidence: Evidence) -> Found:
    """The lines of `LINES` in the logs of the last attempt, with the step that each names, in their order."""
    lines: Found = {}
    for log in _logs_in_order(evidence):
        for spot in find_lines(evidence.root / log.path, Hints(("checkpoint", "global_step"))):
            line = strip_ansi(spot.text)
            for name, pattern in LINES.items():
                match = pattern.search(line)
                if match and len(lines.setdefault(name, [])) < MAX_LINES:
                    item = EvidenceItem(log.path, spot.number, line.strip()[:300])
                    lines[name].append((int(match.group(1)), item))
    return lines


def packages(evidence: Evidence) -> list[tuple[re.Match[str], EvidenceItem]]:
    """What the run said about its packages, before anything else."""
    messages = []
    for log in _logs_in_order(evidence)[:1]:
        lines = find_lines(evidence.root / log.path, Hints((locked_versions.HINT,)))
        for line in itertools.takewhile(lambda line: line.number <= FIRST_LINES, lines):
            if match := locked_versions.SAID.match(line.text):
                messages.append((match, EvidenceItem(log.path, line.number, line.text.strip())))
    return messages


def _logs_in_order(evidence: Evidence) -> list[LogFile]:
    """Logs of the commands, in the order of the commands; all logs when no command has its own."""
    logs = list(evidence.last.own_logs if evidence.last else ())
    order = {command.name: place for place, command in enumerate(evidence.plan.commands)}
    command_logs = [log for log in logs if PurePath(log.path).stem in order]
    return sorted(command_logs, key=lambda log: order[PurePath(log.path).stem]) or logs
