"""What a verl run proves: the deliverables of a Bridge validation, from logs, metrics and checkpoint files.

A line or a record with `training/global_step` proves a trained step. A progress bar at 100 %, a validation
line and an exit code prove none. `Fail`: a file shows an error. `Blocked`: no file shows the proof, which is
no evidence against the tested code, and nothing is claimed.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from jobspec.evidence.repo_tests import bridge_checks
from jobspec.frameworks.shared.answer import Answer, failed, passed
from jobspec.frameworks.shared.metric_deliverables import first_not_finite, row_item
from jobspec.frameworks.verl.levels import MEGATRON
from jobspec.frameworks.verl.printed_config import Setting
from jobspec.frameworks.verl.run_facts import GRAD, KL, REWARD, Seen, see
from jobspec.frameworks.verl.variants import judge_variants
from jobspec.units import is_below
from jobspec.verdict import Deliverable, EvidenceItem, Status

if TYPE_CHECKING:
    from jobspec.evidence.evidence import Evidence

IMPORT, RUN, CAPTURE = "Local Bridge import in verl", "verl Megatron backend run", "Log capture"
FINITE = (
    "actor/loss",
    "actor/pg_loss",
    KL,
    "actor/ppo_kl",
    GRAD,
    "actor/entropy",
    "actor/reward_kl_penalty",
    "critic/loss",
    "critic/vf_loss",
    "critic/grad_norm",
    "critic/score/mean",
    REWARD,
    "training/rollout_probs_diff_mean",
)
BRIDGE = "megatron.bridge"
ROLES = (MEGATRON, "critic.megatron")


def judge(evidence: Evidence) -> Iterator[Deliverable]:
    """All deliverables of the guide, in its order."""
    seen = see(evidence)
    yield bridge_checks(evidence)
    yield judge_import(seen)
    yield judge_run(seen)
    yield judge_variants(seen)
    yield judge_capture(seen)


# -- import ------------------------------------------------------------------------------------------


def judge_import(seen: Seen) -> Deliverable:
    """`Pass` when the driver and the workers imported `megatron.bridge` from the checkout that was named."""
    proof = next((item for item in seen.evidence.plan.proofs if item.module == BRIDGE), None)
    if proof is None:
        reason = "no checkout is named for the comparison: which Bridge ran is not proved"
        return Deliverable(IMPORT, Status.NOT_REQUESTED, reason=reason, required=False)
    if seen.evidence.foreign:
        return _foreign_import(seen, proof.root)
    return _recorded_import(seen, proof.root)


def _recorded_import(seen: Seen, root: str) -> Deliverable:
    """What the import proof recorded on every node, and what the probe saw beside it."""
    evidence = seen.evidence
    results = evidence.last.results if evidence.last else None
    files: Mapping[str, str] = results.imports.get(BRIDGE, {}) if results else {}
    items = (
        tuple(EvidenceItem(results.file, text=f"{node}: {f}") for node, f in files.items()) if results else ()
    )
    probed = [(where, file, item) for where, file, item in _probed(seen)]
    items = (*items, *(item for _, _, item in probed))
    wrong = [file for file in (*files.values(), *(f for _, f, _ in probed)) if not is_below(file, root)]
    if wrong:
        reason = f"`{BRIDGE}` comes from {wrong[0]}, not from {root}: the run is void"
        return Deliverable(IMPORT, Status.BLOCKED, items, reason, settled=True)
    if not files or len(files) < evidence.plan.nodes:
        reason = f"not shown: `{BRIDGE}` was recorded on {len(files)} of {evidence.plan.nodes} nodes"
        return Deliverable(IMPORT, Status.BLOCKED, items, reason, settled=True)
    where = (
        "in the driver and in a Ray worker"
        if {w for w, _, _ in probed} >= {"driver", "worker"}
        else "on every node"
    )
    return Deliverable(IMPORT, Status.PASS, items, f"from {root} {where}", settled=True)


def _probed(seen: Seen) -> Iterator[tuple[str, str, EvidenceItem]]:
    for facts in seen.logs:
        yield from ((where, file, item) for where, module, file, item in facts.imports if module == BRIDGE)


def _foreign_import(seen: Seen, root: str) -> Deliverable:
    """Lines that name the module's file, or frames of tracebacks in it; another place voids the run."""
    from jobspec.evidence.log_facts import scan_facts

    evidence = seen.evidence
    logs = evidence.last.logs if evidence.last else ()
    imports = scan_facts([(evidence.root / log.path, log.path) for log in logs], [BRIDGE]).imports.get(
        BRIDGE, []
    )
    wrong = next(((file, item) for file, item in imports if not is_below(file, root)), None)
    if wrong is not None:
        reason = f"`{BRIDGE}` comes from {wrong[0]}, not from {root}: the run is void"
        return Deliverable(IMPORT, Status.BLOCKED, (wrong[1],), reason)
    if not imports:
        reason = f"not shown: no log says where `{BRIDGE}` was imported from"
        return Deliverable(IMPORT, Status.BLOCKED, reason=reason)
    workers = [item for _, item in imports if "worker" in item.text.lower()]
    where = "also in a Ray worker" if workers else "no line is from a Ray worker"
    return Deliverable(IMPORT, Status.PASS, tuple(item for _, item in imports[:3]), f"from {root}; {where}")


# -- run ---------------------------------------------------------------------------------------------


def judge_run(seen: Seen) -> Deliverable:
    """`Pass`: every planned step was trained, by Megatron and the non-vanilla Bridge, with finite metrics."""
    vanilla = [setting for role in ROLES for setting in seen.values(f"{role}.vanilla_mbridge")]
    bridge = next((setting.item for setting in vanilla if setting.value == "False"), None)
    megatron = seen.any_line("megatron")
    steps = _check_steps(seen)
    wrong = next((answer for answer in _wrong(seen, vanilla, steps) if answer is not None), None)
    if wrong is not None:
        return Deliverable(RUN, Status.FAIL, wrong.items, wrong.reason)
    proofs = tuple(item for item in (bridge, megatron, seen.adapter, *steps.items) if item is not None)
    adapter = seen.adapter if seen.asks_lora else steps
    missing = (
        (bridge, "no log shows `vanilla_mbridge` False"),
        (megatron, "no log shows the Megatron trainer"),
        (adapter, "no log shows a LoRA adapter with trainable parameters"),
    )
    for shown, reason in missing:
        if shown is None:
            return Deliverable(RUN, Status.BLOCKED, proofs, f"not shown: {reason}")
    return Deliverable(RUN, Status.PASS, proofs, _summary(seen))


def _wrong(seen: Seen, vanilla: Sequence[Setting], steps: Answer) -> Iterator[Answer | None]:
    """What the files show to be wrong, the most basic first."""
    yield _failed_command(seen.evidence)
    for setting in vanilla:
        if setting.value == "True":
            what = "`vanilla_mbridge` is True: the package `mbridge` built the model, not the Bridge"
            yield failed(what, [setting.item])
    other = seen.any_line("other_engine")
    yield failed("an engine other than Megatron trained", [other]) if other else None
    yield steps if steps.status is Status.FAIL else None
    frozen = seen.frozen_adapter if seen.asks_lora else None
    yield failed("the LoRA adapter has no trainable parameter", [frozen]) if frozen else None
    bad = first_not_finite(seen.evidence, FINITE)
    if bad is not None:
        yield failed(f"`{bad.metric}` of step {bad.step} is not a finite number", [row_item(bad)])


def _summary(seen: Seen) -> str:
    shards = any(setting.value == "True" for setting in seen.actor_size("use_megatron_fsdp"))
    how = f"{'LoRA' if seen.adapter else 'full parameters'} + {'Megatron-FSDP' if shards else 'DDP'}"
    count = len(seen.trained)
    return f"{how}; {count} trained step{'s' if count != 1 else ''} up to step {seen.planned}, finite metrics"


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
    if not trained:
        return failed("no line and no record shows a trained step")
    # Steps before a resume may belong to another run, whose files are not here.
    resumed = seen.resumed.resumed if seen.resumed else None
    alone = resumed is not None and min(trained) > resumed[0]
    first = resumed[0] + 1 if resumed is not None and alone else 1
    ends = [trained[step] for step in sorted({min(trained), max(trained)})]
    missing = sorted(set(range(first, seen.planned + 1)) - set(trained))
    if missing:
        shown = f"{len(trained)} trained steps are shown"
        return failed(f"{shown}; step {missing[0]} is the first missing one of {seen.planned}", ends)
    return passed("", ends)


# -- capture -----------------------------------------------------------------------------------------


def judge_capture(seen: Seen) -> Deliverable:
    """`Pass` when a log was kept and every planned step left metrics beside its number."""
    attempt = seen.evidence.last
    logs = [log for log in (attempt.logs if attempt else ()) if log.bytes]
    if not logs:
        return Deliverable(CAPTURE, Status.FAIL, reason="no log was kept")
    rows = seen.evidence.metrics.series(GRAD)
    if not rows:
        return Deliverable(CAPTURE, Status.FAIL, reason=f"no metrics were captured: `{GRAD}` is missing")
    run_logs = [log for log in logs if Path(log.path).stem in ("train", "resume")] or logs
    items = (
        *(EvidenceItem(log.path, text=f"{log.bytes} bytes") for log in run_logs[:2]),
        row_item(rows[0]),
        row_item(rows[-1]),
    )
    names = ", ".join(log.path for log in run_logs[:2])
    return Deliverable(
        CAPTURE, Status.PASS, items, f"{names}; metrics of {len(rows)} step{'' if len(rows) == 1 else 's'}"
    )
