"""What tells a requested variant from the smoke run: lines that only it prints, and trained adapters."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import yaml

from jobspec.frameworks.nemo_rl.log_lines import numbers
from jobspec.frameworks.nemo_rl.proof_lines import PROOFS, SIZE_KEYS
from jobspec.frameworks.nemo_rl.variant_run import VariantRun
from jobspec.frameworks.nemo_rl.variant_verdicts import Part, passed, unseen, wrong
from jobspec.metrics import Table
from jobspec.verdict import EvidenceItem, Status

FALLBACKS = "r3/routed_experts_fallback_token_routes"


def judge_variant(run: VariantRun) -> Part:
    """Every line that the variant must leave, none that it must not, and an adapter with parameters."""
    if run.skipped is not None:
        return Part(Status.SKIPPED, f"`{run.name}`: {run.skipped.groups[0]}", (run.skipped.item,))
    parts = [*_proofs(run), *_adapter(run), *_overrides(run), *_routes(run)]
    for status in (Status.FAIL, Status.BLOCKED):
        bad = next((part for part in parts if part.status is status), None)
        if bad is not None:
            return bad
    if not any(part.items for part in parts):
        built = tuple(line.item for line in run.lines.get("built", ())[:1])
        return passed(run, run.variant.proves, built) if built else unseen(run, "the log shows no model")
    told = [run.variant.proves, *(part.reason.partition(": ")[2] for part in parts if part.reason)]
    return passed(run, "; ".join(told), [item for part in parts for item in part.items])


def _proofs(run: VariantRun) -> Iterator[Part]:
    for name in run.variant.proofs:
        proof, lines = PROOFS[name], run.lines.get(name, ())
        if proof.forbidden:
            yield wrong(run, f"the log shows {proof.shows}", [lines[0].item]) if lines else passed(run)
        elif lines:
            yield passed(run, items=[lines[0].item])
        elif (kept := _in_checkpoint(run, SIZE_KEYS.get(name, ""))) is not None:
            yield passed(run, items=[kept])
        else:
            yield unseen(run, f"the log does not show {proof.shows}")


def _in_checkpoint(run: VariantRun, key: str) -> EvidenceItem | None:
    """A size above 1 in the resolved configuration that NeMo-RL keeps with each complete checkpoint."""
    for folder in _checkpoints(run) if key else ():
        try:
            config = yaml.safe_load((folder / "config.yaml").read_text("utf-8"))
            size = config["policy"]["megatron_cfg"][key]
        except (OSError, ValueError, yaml.YAMLError, KeyError, TypeError):
            continue  # no such file, or no such configuration: it shows nothing
        if isinstance(size, int) and size > 1:
            return EvidenceItem(str(folder / "config.yaml"), text=f"policy.megatron_cfg.{key}: {size}")
    return None


def _checkpoints(run: VariantRun) -> Iterator[Path]:
    for line in run.lines.get("complete", ()):
        yield Path(line.groups[0], f"step_{line.groups[1]}")
    yield from (Path(one.path) for one in run.evidence.checkpoints if run.foreign)


def _adapter(run: VariantRun) -> Iterator[Part]:
    """Trained parameters as Megatron-Bridge counts them; none at all is an adapter that is frozen."""
    if not run.variant.lora:
        return
    counts = numbers(run.lines, "adapter")
    if not counts:
        yield unseen(run, f"the log does not show {PROOFS['adapter'].shows}")
    elif max(counts) == 0:
        yield wrong(run, "the LoRA adapter has no parameter to train", [counts[0]])
    else:
        yield passed(run, f"{max(counts)} trainable parameters", [counts[max(counts)]])


def _overrides(run: VariantRun) -> Iterator[Part]:
    """What jobspec passed on arrived: a script that drops its arguments runs something else."""
    lines = run.lines.get("overrides", ())
    if run.foreign or not lines:
        return
    for text in run.variant.overrides:
        if not any(f"'{text}'" in line.groups[0] for line in lines):
            yield wrong(run, f"`{text}` did not reach the trainer", [lines[0].item])


def _routes(run: VariantRun) -> Iterator[Part]:
    """Tokens that took the router's own choice, and the checker of traced routes where it ran."""
    if "router-replay" not in run.variant.proofs:
        return
    traces = run.lines.get("trace", ())
    if traces and not run.lines.get("trace-passed"):
        yield wrong(run, "the check of the traced routes did not pass", [traces[0].item])
    if run.variant.trace and not traces and not run.foreign:
        yield unseen(run, "the traced routes were not checked")
    lines = run.lines.get("fallback", ())
    missing = sum(sum(_finite(table)) for _, table in run.tables)
    items: list[EvidenceItem] = [line.item for line in lines[:1]]
    yield passed(run, f"{len(lines)} warnings and {missing:g} tokens without a route", items)


def _finite(table: Table) -> list[float]:
    names = [name for name in table.metrics if name.endswith(FALLBACKS)]
    return [value for name in names for value in table.values(name, finite=True)]
