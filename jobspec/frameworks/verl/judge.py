"""What a verl run proves: the deliverables of a Bridge validation, from logs, metrics and checkpoint files.

A progress bar at 100 %, a validation line and an exit code are no proof of a trained step; a line or a record
with `training/global_step` is. What no file shows is not claimed.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from jobspec.frameworks.signals import first_not_finite, learning_deliverable, row_item
from jobspec.frameworks.verl.log import LogFacts, read_lines, read_logs
from jobspec.metrics import concat, read_console
from jobspec.verdict import Deliverable, EvidenceItem, Status

if TYPE_CHECKING:
    from jobspec.evidence_model import Checkpoint, Evidence

SIDE, IMPORT, RUN = "Bridge-side checks", "Local Bridge import in verl", "verl Megatron backend run"
VARIANTS, CAPTURE = "Requested variants", "Log capture"
STEP, KL, GRAD = "training/global_step", "actor/kl_loss", "actor/grad_norm"
FINITE = ("actor/loss", "actor/pg_loss", KL, GRAD, "actor/entropy", "critic/vf_loss", "critic/rewards/mean")
SIZES = {
    "tp": "tensor_model_parallel_size",
    "pp": "pipeline_model_parallel_size",
    "cp": "context_parallel_size",
    "ep": "expert_model_parallel_size",
    "etp": "expert_tensor_parallel_size",
}
TRACKER, MANIFEST = "latest_checkpointed_iteration.txt", "ckpt_contents.json"
BRIDGE = "megatron.bridge"


@dataclass(frozen=True)
class Seen:
    """The evidence with its metrics complete, and what the logs say."""

    evidence: Evidence
    logs: tuple[LogFacts, ...]

    def setting(self, key: str, value: str) -> EvidenceItem | None:
        return next((f.settings[key, value] for f in self.logs if (key, value) in f.settings), None)

    @property
    def resumed(self) -> LogFacts | None:
        return next((facts for facts in self.logs if facts.resumed), None)

    @property
    def trained(self) -> set[int]:
        """Steps with proof that they were trained."""
        rows = self.evidence.metrics.series(STEP)
        steps = {step for facts in self.logs for step in facts.trained}
        return steps | {row.step for row in rows if row.step is not None and row.value == row.step}


def judge(evidence: Evidence) -> Iterator[Deliverable]:
    """All deliverables of the guide, in its order."""
    seen = _see(evidence)
    reason = "no test of the Bridge's own is part of this run"
    yield Deliverable(SIDE, Status.SKIPPED, reason=reason, required=False)
    yield judge_import(evidence)
    yield judge_run(seen)
    yield judge_variants(seen)
    yield judge_capture(seen)


def _see(evidence: Evidence) -> Seen:
    """Metrics come from the file logger; where it left none, from what the console printed."""
    attempt = evidence.last
    if attempt is None:
        return Seen(evidence, ())
    names = [log.path for log in attempt.logs]
    logs = read_logs(evidence.root, names)
    if not evidence.metrics.series(STEP):
        printed = concat([read_console(evidence.root / name, name) for name in names])
        last = replace(attempt, metrics=concat([attempt.metrics, printed]))
        evidence = replace(evidence, attempts=(*evidence.attempts[:-1], last))
    return Seen(evidence, logs)


def judge_import(evidence: Evidence) -> Deliverable:
    """`Pass` when the import proof recorded `megatron.bridge` below the spec's checkout on every node."""
    proof = next((one for one in evidence.plan.proofs if one.module == BRIDGE), None)
    results = evidence.last.results if evidence.last else None
    if proof is None or results is None:
        what = "no checkout was named to compare with" if proof is None else "no import was recorded"
        return Deliverable(IMPORT, Status.BLOCKED, reason=f"{what}: which Bridge ran is not proved")
    files: Mapping[str, str] = results.imports.get(BRIDGE, {})
    items = tuple(EvidenceItem(results.file, text=f"{node}: {file}") for node, file in files.items())
    wrong = next((file for file in files.values() if not Path(file).is_relative_to(proof.root)), None)
    if wrong is not None:
        reason = f"`{BRIDGE}` comes from {wrong}, not from {proof.root}: the run is void"
        return Deliverable(IMPORT, Status.BLOCKED, items, reason)
    if not files or len(files) < evidence.plan.nodes:
        reason = f"`{BRIDGE}` was recorded on {len(files)} of {evidence.plan.nodes} nodes"
        return Deliverable(IMPORT, Status.BLOCKED, items, reason)
    return Deliverable(IMPORT, Status.PASS, items, f"from {proof.root} on every node")


def judge_run(seen: Seen) -> Deliverable:
    """`Pass`: every planned step was trained, by Megatron and the non-vanilla Bridge, with finite metrics."""
    planned, options = seen.evidence.plan.expect.steps, seen.evidence.plan.expect.options
    problem, items = _steps_problem(seen, planned)
    vanilla, bridge = (seen.setting("vanilla_mbridge", value) for value in ("True", "False"))
    megatron = next((facts.megatron for facts in seen.logs if facts.megatron), None)
    adapter = next((facts.adapter for facts in seen.logs if facts.adapter), None)
    wanted_rank = options.get("lora_rank") or 0
    failed = _failed_command(seen.evidence)
    bad = first_not_finite(seen.evidence, FINITE)
    proofs = tuple(item for item in (bridge, megatron, adapter, *items) if item is not None)
    checks = (
        (failed, failed),
        (problem, problem),
        (vanilla, "a log shows `vanilla_mbridge` True: the local Bridge was not what built the model"),
        (bridge is None, "no log shows `VANILLA_MBRIDGE=False`"),
        (megatron is None, "no log shows the Megatron trainer"),
        (wanted_rank and adapter is None, "no log shows a LoRA adapter with trainable parameters"),
        (bad, f"`{bad.metric}` of step {bad.step} is not a finite number" if bad else ""),
    )
    reason = next((text for wrong, text in checks if wrong), "")
    if reason:
        return Deliverable(RUN, Status.FAIL, (row_item(bad),) if bad else proofs, reason)
    with_lora = " with a LoRA adapter" if adapter else ""
    reason = f"{len(seen.trained)} trained steps up to step {planned}{with_lora}, finite metrics"
    return Deliverable(RUN, Status.PASS, proofs, reason)


def _steps_problem(seen: Seen, planned: int) -> tuple[str, Sequence[EvidenceItem]]:
    """What is wrong with the trained steps, or nothing; and lines of the first and last."""
    trained = seen.trained
    lines = {step: item for facts in seen.logs for step, item in facts.trained.items()}
    rows = seen.evidence.metrics.series(STEP)
    lines = {**{row.step: row_item(row) for row in rows if row.step is not None}, **lines}
    if not trained:
        return "no line and no record shows a trained step", ()
    # Steps before a resume may belong to another run, whose files are not here.
    resumed = seen.resumed.resumed if seen.resumed else None
    alone = resumed is not None and min(trained) > resumed[0]
    first = resumed[0] + 1 if resumed is not None and alone else 1
    missing = sorted(set(range(first, planned + 1)) - trained)
    if missing:
        shown = f"{len(trained)} trained steps are shown"
        return f"{shown}; step {missing[0]} is the first missing one of {planned}", ()
    return "", [lines[step] for step in sorted({min(trained), max(trained)}) if step in lines]


def _failed_command(evidence: Evidence) -> str:
    results = evidence.last.results if evidence.last else None
    bad = next((one for one in (results.commands if results else ()) if one.exit_code != 0), None)
    return f"`{bad.name}` exited with {bad.exit_code}" if bad else ""


# -- variants ----------------------------------------------------------------------------------------


def judge_variants(seen: Seen) -> Deliverable:
    """What the level asks for beyond level 0."""
    by_level = {
        "checkpoint": _checkpoint,
        "parallel": _parallel,
        "fsdp": _fsdp,
        "architecture": _architecture,
        "learning": _learning,
    }
    found = by_level.get(seen.evidence.plan.expect.level)
    if found is None:
        reason = "the level asks for none"
        return Deliverable(VARIANTS, Status.NOT_REQUESTED, reason=reason, required=False)
    problem, items, proved = found(seen)
    return Deliverable(VARIANTS, Status.FAIL if problem else Status.PASS, tuple(items), problem or proved)


Judged = tuple[str, Sequence[EvidenceItem], str]  # what is wrong or "", evidence, what a pass has shown


def _checkpoint(seen: Seen) -> Judged:
    problem, items = _saved(seen)
    if problem:
        return problem, items, ""
    facts, planned = seen.resumed, seen.evidence.plan.expect
    if facts is None or facts.resumed is None:
        return "no log shows that training continued from a checkpoint", items, ""
    start, line = facts.resumed
    wanted = planned.options.get("resume_from") or start
    items = [*items, line, *facts.loaded.values()]
    roles = ["actor", "critic"] if _has_critic(seen) else ["actor"]
    unloaded = [
        f"{role} {kind}"
        for role in roles
        for kind in ("optimizer", "model")
        if not any(r == role and _is_kind(what, kind) for r, what in facts.loaded)
    ]
    after = set(facts.trained) or {step for step in seen.trained if step > start}
    checks = (
        (start != wanted, f"training continued from step {start}, planned was step {wanted}"),
        (start < 1, "training continued from step 0: nothing was resumed"),
        (facts.scratch, "the log of the resume also says `Training from scratch`"),
        (facts.no_adapter, "the resume found no adapter checkpoint"),
        (unloaded, f"no log shows that a worker loaded {', '.join(unloaded)}"),
        (
            after != set(range(start + 1, planned.steps + 1)),
            f"the resume trained steps {sorted(after)}, not {start + 1} to {planned.steps}",
        ),
    )
    problem = next((text for wrong, text in checks if wrong), "")
    return problem, items, f"saved, loaded after step {start}, and trained on to step {planned.steps}"


def _is_kind(what: str, kind: str) -> bool:
    if kind == "optimizer":
        return "optimizer" in what
    return any(word in what for word in ("adapter", "model", "bridge"))


def _has_critic(seen: Seen) -> bool:
    planned = seen.evidence.plan.expect.options.get("critic")
    return bool(seen.evidence.metrics.series("critic/vf_loss")) if planned is None else bool(planned)


def _saved(seen: Seen) -> tuple[str, list[EvidenceItem]]:
    """The tracker is written last, and from release 0.9.0 on each role's manifest marks it as complete."""
    found, planned = _checkpoints(seen.evidence), seen.evidence.plan.expect.steps
    last = next((item for item in found if item.step == planned), None)
    if last is None:
        return f"there is no checkpoint of step {planned}", []
    tracker = Path(last.path).parent / TRACKER
    try:
        text = tracker.read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError):
        return f"`{TRACKER}` cannot be read: no save was finished", []
    items = [EvidenceItem(str(tracker), 1, text), EvidenceItem(last.path, text=f"{last.bytes} bytes")]
    if text != str(planned):
        return f"`{TRACKER}` says step {text[:20]}, not {planned}", items
    if "data.pt" not in last.files:
        return f"the checkpoint of step {planned} has no `data.pt`", items
    roles = ["actor", "critic"] if _has_critic(seen) else ["actor"]
    empty = [role for role in roles if not any(name.startswith(f"{role}/") for name in last.files)]
    if empty:
        return f"the checkpoint of step {planned} has no `{empty[0]}`", items
    manifests = [name for name in last.files if name.endswith(f"/{MANIFEST}")]
    missing = [role for role in roles if f"{role}/{MANIFEST}" not in manifests]
    if manifests and missing:
        return f"`{missing[0]}` of step {planned} has no `{MANIFEST}`: its save was cut off", items
    return "", items


def _checkpoints(evidence: Evidence) -> tuple[Checkpoint, ...]:
    """Without a folder in the plan, a run's checkpoints are in its own directory."""
    from jobspec.evidence import read_checkpoints  # it pulls in all readers

    return evidence.checkpoints or read_checkpoints(evidence.root / "checkpoints")


def _parallel(seen: Seen) -> Judged:
    options = seen.evidence.plan.expect.options
    asked = {key: options[key] for key in SIZES if isinstance(options.get(key), int) and options[key] != 1}
    if not asked:
        return "nothing says which sizes were to be stressed", (), ""
    items: list[EvidenceItem] = []
    for key, size in asked.items():
        # Rollout engines have a key of the same name as `tp`: only the script's trace tells them apart.
        traced = seen.setting(f"trace:{SIZES[key]}", str(size))
        item = traced or (seen.setting(SIZES[key], str(size)) if key != "tp" else None)
        if item is None:
            return f"no log shows `{SIZES[key]}` {size} in verl's configuration", items, ""
        items.append(item)
    return "", items, ", ".join(f"{key} = {size}" for key, size in asked.items())


def _fsdp(seen: Seen) -> Judged:
    item = seen.setting("use_megatron_fsdp", "True")
    if item is None:
        return "no log shows `use_megatron_fsdp` True: the run may have used DDP", (), ""
    return "", (item,), "Megatron-FSDP is on in verl's configuration"


def _architecture(seen: Seen) -> Judged:
    """Each asked setting must be in the configuration that verl resolved, or in the script's trace."""
    options = seen.evidence.plan.expect.options
    asked = {k.removeprefix("feature:"): str(v) for k, v in options.items() if k.startswith("feature:")}
    if not asked:
        return "nothing says which feature was to be run", (), ""
    items: list[EvidenceItem] = []
    for key, value in asked.items():
        item = _shown(seen, key.lstrip("+"), value)
        if item is None:
            return f"no log shows `{key}` {value}", items, ""
        items.append(item)
    return "", items, ", ".join(f"{key} = {value}" for key, value in asked.items())


def _shown(seen: Seen, key: str, value: str) -> EvidenceItem | None:
    leaf = key.rpartition(".")[2]
    plain = "None" if value == "null" else value
    pattern = re.compile(
        rf"^\+ (?:export )?{re.escape(key)}='?{re.escape(value)}'?$"
        if key.isupper()
        else rf"'{re.escape(leaf)}': '?{re.escape(plain)}(?!\w)"
    )
    attempt = seen.evidence.last
    logs = attempt.logs if attempt else ()
    lines = (pair for log in logs for pair in read_lines(seen.evidence.root, log.path))
    return next((item for text, item in lines if pattern.search(text)), None)


def _learning(seen: Seen) -> Judged:
    told = learning_deliverable(seen.evidence)
    if told.status is not Status.PASS:
        return told.reason or "no metric was named to learn by", told.evidence, ""
    table, lora = seen.evidence.metrics, seen.evidence.plan.expect.options.get("lora_rank")
    kl, grads = table.values(KL), table.values(GRAD)
    if lora and kl and not any(kl):
        return f"`{KL}` is exactly 0 in every step: the adapter is frozen", told.evidence, ""
    if not grads:
        return f"`{GRAD}` was never logged", told.evidence, ""
    still = sum(value == 0 for value in grads)
    if still * 2 > len(grads):
        return f"`{GRAD}` is 0 in {still} of {len(grads)} steps", told.evidence, ""
    return "", told.evidence, f"learning signal: {told.reason}"


def judge_capture(seen: Seen) -> Deliverable:
    """`Pass` when a log was kept and every planned step left metrics beside its number."""
    attempt = seen.evidence.last
    logs = [log for log in (attempt.logs if attempt else ()) if log.bytes]
    if not logs:
        return Deliverable(CAPTURE, Status.FAIL, reason="no log was kept")
    rows = seen.evidence.metrics.series(GRAD)
    if not rows:
        return Deliverable(CAPTURE, Status.FAIL, reason=f"no metrics were captured: `{GRAD}` is missing")
    items = (EvidenceItem(logs[0].path, text=f"{logs[0].bytes} bytes"), row_item(rows[0]), row_item(rows[-1]))
    return Deliverable(CAPTURE, Status.PASS, items, f"{len(logs)} logs, metrics of {len(rows)} steps")
