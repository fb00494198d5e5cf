"""Deliverable "Requested variants": lines that only a variant prints, and the smoke run does not."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from statistics import fmean

import yaml

from jobspec.frameworks.nemo_rl.log_lines import numbers
from jobspec.frameworks.nemo_rl.printed_config import NOT_VLLM
from jobspec.frameworks.nemo_rl.proof_lines import PROOFS, SIZE_KEYS
from jobspec.frameworks.nemo_rl.variant_run import VariantRun
from jobspec.frameworks.shared.answer import Answer, combine, worst
from jobspec.frameworks.shared.metric_deliverables import row_item
from jobspec.metrics import Table
from jobspec.verdict import Deliverable, EvidenceItem, Status

NAME = "Requested variants"
FALLBACKS = "r3/routed_experts_fallback_token_routes"
REFIT, TIMED, TOTAL = 2, "prepare_for_generation", "total"
UNTIMED = "what NeMo-RL times no further, such as offloading and waking the engine"
EXTRAS = {
    "adapter": "LoRA",
    "non-colocated": "a generator on GPUs of its own",
    "data-plane-simple": "the data plane (simple)",
    "data-plane-mooncake": "the data plane (mooncake_cpu)",
    "megatron-generation": "Megatron as the generator",
    "router-replay": "router replay",
    "draft-loss": "a draft model",
    "loaded": "a resume",
}


def judge_requested(runs: Sequence[VariantRun]) -> Deliverable:
    """The deliverable; the smoke run alone is no variant. Extras of other people's files are listed."""
    requested = [run for run in runs if run.variant.level > 0 or run.name != "colocated"]
    extras = _extras(runs)
    if runs and not requested:
        reason = f"only the smoke run was requested{extras}"
        return Deliverable(NAME, Status.NOT_REQUESTED, reason=reason, required=False)
    verdict = combine(NAME, [_judge_variant(run) for run in requested], "each variant left its proof")
    if verdict.status is not Status.PASS:
        return verdict
    return replace(verdict, reason=f"{verdict.reason}{extras}")


def _extras(runs: Sequence[VariantRun]) -> str:
    """Proofs in the files beyond the requested variants, as the end of a sentence."""
    if not runs or not runs[0].foreign:
        return ""
    known = {proof for run in runs for proof in run.variant.proofs}
    known |= {"adapter"} if any(run.variant.lora for run in runs) else set()
    known |= {"loaded"} if any(run.variant.resumes for run in runs) else set()
    extras = [text for name, text in EXTRAS.items() if name not in known and runs[0].lines.get(name)]
    return f"; the files also show {', '.join(extras)}" if extras else ""


def _judge_variant(run: VariantRun) -> Answer:
    """`Pass` with every required line, no forbidden line, and an adapter that has parameters."""
    if run.skipped is not None:
        return Answer(Status.SKIPPED, f"`{run.name}`: {run.skipped.groups[0]}", (run.skipped.item,))
    if not run.known:
        return run.unseen(
            "no variant was named, and jobspec found no line that shows which one of this level ran"
        )
    answers = [*_proofs(run), *_adapter(run), *_overrides(run), *_routes(run), *_refit(run)]
    if (bad := worst(answers)) is not None:
        return bad
    if not any(answer.items for answer in answers):
        built = tuple(line.item for line in run.lines.get("built", ())[:1])
        return (
            run.passed(run.claim, built)
            if built
            else run.unseen("jobspec found no line that shows a model that Megatron built")
        )
    reasons = [run.claim, *(answer.reason.partition(": ")[2] for answer in answers if answer.reason)]
    return run.passed("; ".join(reasons), [item for answer in answers for item in answer.items])


def _proofs(run: VariantRun) -> Iterator[Answer]:
    for name in run.variant.proofs:
        proof, lines = PROOFS[name], run.lines.get(name, ())
        if proof.forbidden:
            yield run.failed(f"the log shows {proof.shows}", [lines[0].item]) if lines else run.passed()
        elif lines:
            yield run.passed(items=[lines[0].item])
        elif (kept := _in_checkpoint(run, SIZE_KEYS.get(name, ""))) is not None:
            yield run.passed(items=[kept])
        else:
            yield run.unseen(f"jobspec found no line that shows {proof.shows}")


def _in_checkpoint(run: VariantRun, key: str) -> EvidenceItem | None:
    """A size above 1 in the configuration that NeMo-RL keeps with each complete checkpoint; None without."""
    for folder in _checkpoints(run) if key else ():
        try:
            config = yaml.safe_load((folder / "config.yaml").read_text("utf-8"))
            size = config["policy"]["megatron_cfg"][key]
        except (OSError, ValueError, yaml.YAMLError, KeyError, TypeError):
            continue  # without the file or the key the checkpoint shows nothing
        if isinstance(size, int) and size > 1:
            return EvidenceItem(str(folder / "config.yaml"), text=f"policy.megatron_cfg.{key}: {size}")
    return None


def _checkpoints(run: VariantRun) -> Iterator[Path]:
    for line in run.lines.get("complete", ()):
        yield Path(line.groups[0], f"step_{line.groups[1]}")
    yield from (Path(one.path) for one in run.evidence.checkpoints if run.foreign)


def _adapter(run: VariantRun) -> Iterator[Answer]:
    """Answers about a LoRA adapter: Megatron-Bridge counts its parameters, and 0 means a frozen adapter."""
    if not run.variant.lora:
        return
    counts = numbers(run.lines, "adapter")
    if not counts:
        yield run.unseen(f"jobspec found no line that shows {PROOFS['adapter'].shows}")
    elif max(counts) == 0:
        yield run.failed("the LoRA adapter has no parameter to train", [counts[0]])
    else:
        yield run.passed(f"{max(counts)} trainable parameters", [counts[max(counts)]])


def _overrides(run: VariantRun) -> Iterator[Answer]:
    """Failures by arguments that did not arrive: a script that drops them runs something else."""
    lines = run.lines.get("overrides", ())
    if run.foreign or not lines:
        return
    for text in run.variant.overrides:
        if not any(f"'{text}'" in line.groups[0] for line in lines):
            yield run.failed(f"`{text}` did not reach the trainer", [lines[0].item])


def _refit(run: VariantRun) -> Iterator[Answer]:
    """Answers about a refit into vLLM: another engine got no weights, and where the time went."""
    if run.variant.level != REFIT:
        return
    other = NOT_VLLM.found(lambda key: run.settings.get(key, ()))
    if other is not None:
        line = run.lines.get("configuration", ()) or run.lines.get("overrides", ())
        yield run.failed(f"the rollouts came from {other[1]}, not from vLLM", [line[0].item])
    means = {
        name.rpartition("/")[2]: (fmean(values), table.series(name)[0])
        for _, table in run.tables
        for name in table.metrics
        if TIMED in name and (values := table.values(name, finite=True))
    }
    if means:
        parts = ", ".join(f"{name} {mean:.2f} s" for name, (mean, _) in means.items())
        most = _bottleneck({name: mean for name, (mean, _) in means.items()})
        yield run.passed(f"{TIMED}: {parts} a step{most}", [row_item(row) for _, row in means.values()])


def _bottleneck(means: Mapping[str, float]) -> str:
    """The largest part of the refit, as the end of a sentence; empty where no total or no part is timed."""
    total, parts = means.get(TOTAL, 0.0), {name: mean for name, mean in means.items() if name != TOTAL}
    rest = total - sum(parts.values())
    if not parts or rest < 0 or total <= 0:
        return ""
    name, mean = max({**parts, UNTIMED: rest}.items(), key=lambda part: part[1])
    return f"; most of it is {name}, {mean:.2f} s ({mean / total:.0%})"


def _routes(run: VariantRun) -> Iterator[Answer]:
    """Answers about router replay: tokens without a replayed route, and the check of traced routes."""
    if "router-replay" not in run.variant.proofs:
        return
    traces = run.lines.get("trace", ())
    if traces and not run.lines.get("trace-passed"):
        yield run.failed("the check of the traced routes did not pass", [traces[0].item])
    if run.variant.trace and not traces and not run.foreign:
        yield run.unseen("the traced routes were not checked")
    lines = run.lines.get("fallback", ())
    missing = sum(sum(_finite(table)) for _, table in run.tables)
    items: list[EvidenceItem] = [line.item for line in lines[:1]]
    yield run.passed(f"{len(lines)} warnings and {missing:g} tokens without a route", items)


def _finite(table: Table) -> list[float]:
    names = [name for name in table.metrics if name.endswith(FALLBACKS)]
    return [value for name in names for value in table.values(name, finite=True)]
