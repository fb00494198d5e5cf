"""What a verl run proves: the deliverables of a Bridge validation, from logs, metrics and checkpoint files.

A line or a record with `training/global_step` proves a trained step. A progress bar at 100 %, a validation
line and an exit code prove none. `Fail`: a file shows an error. `Blocked`: no file shows the proof, which is
no evidence against the tested code, and nothing is claimed.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from jobspec.evidence.repo_tests import bridge_checks
from jobspec.frameworks.shared.answer import Answer, failed, not_tested, passed, unseen, worst
from jobspec.frameworks.shared.bridge_import import judge_import
from jobspec.frameworks.shared.metric_deliverables import row_item
from jobspec.frameworks.shared.unmapped_weights import HF_IMPORT
from jobspec.frameworks.shared.weak_evidence import counted_limits
from jobspec.frameworks.verl.levels import DUMMY_LIMIT, LORA, MEGATRON
from jobspec.frameworks.verl.printed_config import Setting
from jobspec.frameworks.verl.resume import trained_nothing
from jobspec.frameworks.verl.run_facts import GRAD, Seen, see
from jobspec.frameworks.verl.variants import judge_variants
from jobspec.frameworks.verl.weak_settings import LORA_LIMIT, setting_limits
from jobspec.metrics.finite import all_finite, first_not_finite
from jobspec.verdict import Deliverable, EvidenceItem, Status

if TYPE_CHECKING:
    from jobspec.evidence.evidence import Evidence

RUN, CAPTURE = "verl Megatron backend run", "Log capture"
ROLES = (MEGATRON, "critic.megatron")
NO_BRIDGE = (
    "an engine other than Megatron is set, and jobspec found no line that shows an import of Megatron-Bridge"
)
AS_COMMAND = "judge such a run by its steps and metrics: `--framework command`"
HEAD_LIMIT = (
    "`lm_head.weight` was not among the weights: a critic's value head starts anew; that it was not the "
    "actor's as well is not shown"
)


def judge(evidence: Evidence) -> Iterator[Deliverable]:
    """All deliverables of the guide, in its order."""
    seen = see(evidence)
    yield bridge_checks(evidence)
    imported = judge_import(evidence, "verl")
    other = seen.any_line("other_engine") if evidence.foreign else None
    if other is not None and imported.status is Status.BLOCKED and not imported.evidence:
        # Of a Bridge nothing is to be shown then.
        imported = replace(imported, status=Status.SKIPPED, evidence=(other,), reason=NO_BRIDGE)
    yield imported
    yield replace(judge_run(seen), limits=tuple(dict.fromkeys(_limits(seen))))
    yield judge_variants(seen)
    yield judge_capture(seen)
    unmapped = seen.any_line("unmapped") or (None if seen.has_critic else seen.any_line("no_head"))
    if unmapped is not None:
        yield Deliverable(
            HF_IMPORT, Status.FAIL, (unmapped,), f"Megatron-Bridge left weights out: {unmapped.text}"
        )


# -- run ---------------------------------------------------------------------------------------------


def judge_run(seen: Seen) -> Deliverable:
    """`Pass`: every planned step was trained, by Megatron and the non-vanilla Bridge, with finite metrics."""
    vanilla = [setting for role in ROLES for setting in seen.values(f"{role}.vanilla_mbridge")]
    bridge = next((setting.item for setting in vanilla if setting.value == "False"), None)
    megatron = seen.any_line("megatron")
    steps = _check_steps(seen)
    wrong = worst([answer for answer in _wrong(seen, vanilla, steps) if answer is not None])
    if wrong is not None:
        other = seen.evidence.foreign and wrong.items == (seen.any_line("other_engine"),)
        return Deliverable(RUN, wrong.status, wrong.items, wrong.reason, fix=AS_COMMAND if other else "")
    if steps.status is not Status.PASS:
        return Deliverable(RUN, steps.status, steps.items, steps.reason)
    proofs = tuple(item for item in (bridge, megatron, seen.adapter, *steps.items) if item is not None)
    adapter = seen.adapter if seen.asks_lora else steps
    missing = (
        (bridge, "jobspec found no line that shows `vanilla_mbridge` False"),
        (megatron, "jobspec found no line that shows the Megatron trainer"),
        (adapter, "jobspec found no line that shows a LoRA adapter with trainable parameters"),
    )
    for shown, reason in missing:
        if shown is None:
            return Deliverable(RUN, Status.BLOCKED, reason=f"not shown: {reason}")
    return Deliverable(RUN, Status.PASS, proofs, _summary(seen))


def _wrong(seen: Seen, vanilla: Sequence[Setting], steps: Answer) -> Iterator[Answer | None]:
    """What the files show to be wrong, the most basic first."""
    yield _failed_command(seen.evidence)
    for setting in vanilla:
        if setting.value == "True":
            what = "`vanilla_mbridge` is True: the package `mbridge` built the model, not the Bridge"
            yield not_tested(seen.evidence.foreign, what, [setting.item])
    other = seen.any_line("other_engine")
    if other:
        read = f"; trained steps read: {len(seen.trained)} of {seen.planned}" if seen.trained else ""
        yield not_tested(seen.evidence.foreign, f"an engine other than Megatron is set{read}", [other])
    yield steps if steps.status is Status.FAIL else None
    frozen = seen.frozen_adapter if seen.asks_lora else None
    yield failed("the LoRA adapter has no trainable parameter", [frozen]) if frozen else None
    bad = first_not_finite(seen.evidence.metrics.as_logged())
    if bad is not None:
        yield failed(
            f"`{bad.metric}` of step {bad.step} is {bad.value}, not a finite number", [row_item(bad)]
        )


def _summary(seen: Seen) -> str:
    count, finite = len(seen.trained), all_finite(seen.evidence.metrics.as_logged())
    steps = f"{count} trained step{'s' if count != 1 else ''} up to step {seen.planned}"
    return f"{_trained_how(seen)}; {steps}; {finite}"


def _trained_how(seen: Seen) -> str:
    """What was trained and what was around the model, as far as it is shown."""
    shards = {setting.value for setting in seen.actor_size("use_megatron_fsdp")}
    full = any(setting.value == "0" for setting in seen.proved(LORA))
    what = "LoRA" if seen.adapter else "full parameters" if full else "no adapter is shown"
    if "True" in shards or seen.wrapped(fsdp=True):
        return f"{what} + Megatron-FSDP"
    return f"{what} + DDP" if "False" in shards or seen.wrapped(fsdp=False) else what


def _limits(seen: Seen) -> Iterator[str]:
    """What the settings that the logs show leave unproved."""

    def values(key: str) -> tuple[str, ...]:
        # What one launch was given limits the pass too, where another launch printed its configuration.
        return (*(setting.value for setting in seen.values(key)), *given(key))

    def given(key: str) -> tuple[str, ...]:
        return tuple(s.value for facts in seen.logs for s in facts.settings.trace.get(key, ()))

    models = dict.fromkeys((*values("actor_rollout_ref.model.path"), *values("MODEL_ID")))
    for model in models or ("",):
        yield from setting_limits(values, given, model, planned=not seen.evidence.foreign)
    counts = [count for facts in seen.logs for count in facts.counts]
    yield from counted_limits(counts, values, f"{MEGATRON}.")
    if seen.has_critic and seen.any_line("no_head"):
        yield HEAD_LIMIT
    if seen.any_line("dummy") or seen.any_line("old_dummy"):
        yield DUMMY_LIMIT
    if seen.adapter is not None:
        yield LORA_LIMIT
    totals = [int(s.value) for s in seen.values("trainer.total_training_steps") if s.value.isdecimal()]
    last = seen.evidence.metrics.last_step() or 0
    if totals and max(totals) < last:
        yield (
            f"the metrics go on to step {last} and the printed configuration ends at step "
            f"{max(totals)}: they may be of another run"
        )


def _failed_command(evidence: Evidence) -> Answer | None:
    results = evidence.last.results if evidence.last else None
    commands = [command for command in (results.commands if results else ()) if command.phase == "driver"]
    bad = next((command for command in commands if command.exit_code != 0), None)
    if bad is None:
        return None
    return failed(f"`{bad.name}` exited with {bad.exit_code}", [EvidenceItem(bad.log)] if bad.log else [])


def _check_steps(seen: Seen) -> Answer:
    """Whether every planned step was trained; with lines of the first and the last."""
    trained = seen.trained
    # Steps before a resume may belong to another run, whose files are not here.
    resumed = seen.resumed.resumed if seen.resumed else None
    if not trained:
        reason = "jobspec found no line and no record of a trained step"
        if resumed is not None and resumed[0] >= seen.planned:
            reason += (
                f": the loaded checkpoint is of step {resumed[0]}, and nothing was left of {seen.planned}"
            )
        return unseen(seen.evidence.foreign, reason, [resumed[1]] if resumed is not None else ())
    alone = resumed is not None and min(trained) > resumed[0]
    first = resumed[0] + 1 if resumed is not None and alone else 1
    ends = [trained[step] for step in sorted({min(trained), max(trained)})]
    if resumed is not None and trained_nothing(seen):
        return failed(f"a process went on from step {resumed[0]} and trained no further step", [resumed[1]])
    missing = sorted(set(range(first, seen.planned + 1)) - set(trained))
    if missing:
        many = "" if len(trained) == 1 else "s"
        read = f"{len(trained)} trained step{many} of {seen.planned} {'were' if many else 'was'} read"
        reason = f"{read}; step {missing[0]} is the first missing one"
        # What is missing is missing behind the last one.
        return unseen(seen.evidence.foreign, reason, ends[::-1] if missing[0] > max(trained) else ends)
    return passed("", ends)


# -- capture -----------------------------------------------------------------------------------------


def judge_capture(seen: Seen) -> Deliverable:
    """`Pass` when a log was kept and every planned step left metrics beside its number."""
    attempt = seen.evidence.last
    logs = [log for log in (attempt.logs if attempt else ()) if log.bytes]
    if not logs:
        lost = unseen(seen.evidence.foreign, "jobspec found no log")
        return Deliverable(CAPTURE, lost.status, reason=lost.reason)
    rows = seen.evidence.metrics.series(GRAD)
    if not rows:
        what = "jobspec read no" if seen.evidence.foreign else "no metrics were captured: there is no"
        lost = unseen(seen.evidence.foreign, f"{what} `{GRAD}`")
        return Deliverable(CAPTURE, lost.status, reason=lost.reason)
    run_logs = [log for log in logs if Path(log.path).stem in ("train", "resume")] or logs
    items = (
        *(EvidenceItem(log.path, text=f"{log.bytes} bytes") for log in run_logs[:2]),
        row_item(rows[0]),
        row_item(rows[-1]),
    )
    names = ", ".join(log.path for log in run_logs[:2])
    return Deliverable(
        CAPTURE,
        Status.PASS,
        items,
        f"{names}; metrics of {len(rows)} train step{'' if len(rows) == 1 else 's'}",
    )
