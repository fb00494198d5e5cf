"""What a NeMo-RL run proves: the guide's deliverables, and what a variant adds to them.

A fault that a file shows is `Fail`. For files of other people, who may have kept only some, a question that
no file answers is `Blocked`. A log of ours is whole: a line that is not in it was never printed.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from jobspec.evidence.repo_tests import bridge_checks
from jobspec.frameworks.nemo_rl.commands import PROBE
from jobspec.frameworks.nemo_rl.metric_checks import judge_capture
from jobspec.frameworks.nemo_rl.printed_config import MEGATRON, setting_limits
from jobspec.frameworks.nemo_rl.proof_lines import TRAINERS
from jobspec.frameworks.nemo_rl.properties import ASYNC
from jobspec.frameworks.nemo_rl.requested_variants import judge_requested
from jobspec.frameworks.nemo_rl.variant_run import VariantRun, runs_of
from jobspec.frameworks.nemo_rl.weights_on_disk import (
    judge_checkpoint,
    judge_hf_import,
    judge_resume,
    last_load,
    resume_problem,
)
from jobspec.frameworks.shared.answer import Answer, combine
from jobspec.frameworks.shared.bridge_import import judge_import
from jobspec.frameworks.shared.metric_deliverables import learning_deliverable
from jobspec.frameworks.shared.weak_evidence import ADAPTER, counted_limits
from jobspec.triage.signatures import NOTE
from jobspec.verdict import Deliverable, EvidenceItem, Status

if TYPE_CHECKING:
    from jobspec.evidence.evidence import Evidence

RUN, CAPTURE = "NeMo-RL Megatron policy run", "Metrics/log capture"


def judge(evidence: Evidence) -> Iterator[Deliverable]:
    """All deliverables, the guide's five first and in its order."""
    runs = runs_of(evidence)
    yield bridge_checks(evidence)
    named = str(evidence.plan.expect.options.get("bridge") or "")
    yield judge_import(evidence, "NeMo-RL", named, PROBE)
    policy_run = combine(RUN, [judge_run(run) for run in runs], "steps ran on Megatron")
    yield replace(policy_run, limits=tuple(dict.fromkeys(_limits(runs))))
    yield judge_requested(runs)
    yield combine(CAPTURE, [judge_capture(run) for run in runs if not run.skipped], "all finite")
    yield from judge_hf_import(runs)
    yield from judge_checkpoint(runs)
    yield from judge_resume(runs)
    if evidence.plan.expect.learning is not None:
        yield learning_deliverable(evidence)


def _limits(runs: Sequence[VariantRun]) -> Iterator[str]:
    """What the printed settings leave unproved."""
    variants = tuple(run.variant for run in runs)
    for run in runs:
        yield from setting_limits(run.settings, variants)
        counts = [int(line.groups[0]) for line in run.lines.get("built", ()) if line.groups[0]]
        yield from counted_limits(counts, run.values, MEGATRON)
        if run.lines.get("adapter"):
            yield ADAPTER
        if run.lines.get("guard-off"):
            yield "NeMo-RL's check for TP of 4 and more was switched off: log-probabilities may differ"


# -- the run -----------------------------------------------------------------------------------------


def judge_run(run: VariantRun) -> Answer:
    """The first answer that is no `Pass`, of exit code, backend, trainer and every planned step."""
    if run.skipped is not None:
        return run.blocked(run.skipped.groups[0], [run.skipped.item])
    for part in (_ended(run), _backend(run), _trainer(run), _steps(run)):
        if part.status is not Status.PASS:
            return part
    items = [*_items(run, "trainer"), *_items(run, "built")]
    ends = [run.steps[step] for step in sorted({min(run.steps), max(run.steps)})]
    steps = "1 step" if len(run.steps) == 1 else f"{len(run.steps)} steps"
    return run.passed(f"{steps} up to {max(run.steps)} on Megatron", [*items, *ends])


def _items(run: VariantRun, name: str) -> tuple[EvidenceItem, ...]:
    return tuple(line.item for line in run.lines.get(name, ())[:1])


def _ended(run: VariantRun) -> Answer:
    if run.exit_code:
        log = run.logs[0].path if run.logs else ""
        return run.failed(f"the command exited with {run.exit_code}", [EvidenceItem(log)])
    return run.passed()


def _backend(run: VariantRun) -> Answer:
    """`Pass` when Megatron built a model; a configuration may fall back to DTensor."""
    if run.lines.get("built"):
        return run.passed()
    if run.other_backend:
        return run.not_tested("the policy is set up on DTensor, not on Megatron", [run.other_backend[0].item])
    if not run.lines.get("started") and not run.began:
        early = _stopped_early(run)
        if early is not None:
            return early
    return run.unseen("jobspec found no line that shows a model that Megatron built", _items(run, "started"))


def _stopped_early(run: VariantRun) -> Answer | None:
    """`Blocked` by a failure before any model was built; None without such a failure."""
    attempt = run.evidence.last
    matches = [m for m in (attempt.matches if attempt else ()) if m.verdict != NOTE and not m.survived]
    own = {log.path for log in run.logs}
    first = next((match for match in matches if match.file in own), None)
    if first is None:
        return None
    reason = "a log shows a failure, and none a model that was built: no evidence against Megatron-Bridge"
    return run.blocked(reason, [EvidenceItem(first.file, first.line, first.text)])


def _trainer(run: VariantRun) -> Answer:
    lines = run.lines.get("trainer", ())
    kinds = list(TRAINERS.values()) if run.guessed else [TRAINERS.get(run.variant.trainer)]
    if run.variant.trainer == "sync":  # of files without a plan, only the settings tell
        switched = (("transfer_queue", "data_plane.enabled"), ("async", ASYNC))
        for trainer, key in switched:
            if "true" in map(str.lower, run.settings.get(key, ())):
                kinds = [TRAINERS[trainer]]
    patterns = [pattern for pattern in kinds if pattern is not None]
    if run.guessed and run.variant.trainer not in TRAINERS:
        patterns = []
    if not patterns:
        return run.failed("another trainer ran", [lines[0].item]) if lines else run.passed()
    if any(pattern.search(line.item.text) for pattern in patterns for line in lines):
        return run.passed()
    if lines:
        return run.failed(f"another trainer than `{run.variant.trainer}` ran", [lines[0].item])
    asked = f"the `{run.variant.trainer}` trainer" if run.known else "a trainer of GRPO"
    return run.unseen(f"jobspec found no line that shows the start of {asked}")


def _steps(run: VariantRun) -> Answer:
    """`Pass` when every planned step ended, and the log shows training: metrics may be an earlier run's."""
    done = run.steps
    before = max(run.loaded, default=0)
    load = last_load(run)
    problem = resume_problem(run, load) if load is not None else None
    if problem is not None:
        return problem
    if not done:
        items = _items(run, "header") or _items(run, "built")
        ended = "jobspec found no line and no record that shows a completed train step" if run.foreign else ""
        return run.failed(ended or "no train step was completed", items)
    if not run.began:
        return run.unseen(
            "metrics were logged, but jobspec found no line that shows a train step", list(done.values())[:1]
        )
    missing = sorted(set(range(before + 1, run.planned + 1)) - set(done))
    if not missing:
        return run.passed()
    reason = f"jobspec found no line that shows the end of train step {missing[0]} of {run.planned}"
    at_end = missing[-1] == run.planned
    return (run.failed if at_end else run.unseen)(reason, [done[max(done)]])
