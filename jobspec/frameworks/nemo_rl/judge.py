"""What a NeMo-RL run proves: its metrics, and lines of the logs that only the real thing prints."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING

from jobspec.frameworks.nemo_rl import PROBE
from jobspec.frameworks.nemo_rl.levels import BY_NAME, FINITE, Variant
from jobspec.frameworks.signals import CHECKPOINT, RESUME, learning_deliverable, row_item
from jobspec.metrics import Table
from jobspec.metrics.text import strip_ansi
from jobspec.verdict import Deliverable, EvidenceItem, Status

if TYPE_CHECKING:
    from jobspec.evidence import Evidence

BRIDGE, POLICY, VARIANTS, CAPTURE = (
    "Local Bridge import",
    "Policy run",
    "Requested variants",
    "Metrics and logs",
)
CHECKS, IMPORT = "Bridge-side checks", "HF import"
PATTERNS = {
    "bridge": r"^jobspec: megatron\.bridge from (\S+)",
    "trainer": r"Running (synchronous|async) GRPO training",
    "megatron": r"MegatronPolicyWorker.*Model, optimizer, and learning rate scheduler built",
    "import": r"Using default megatron checkpoint dir: \S*/hf-import",
    "skipped": r"Checkpoint already exists at .* Skipping import",
    "check": r"│\s*(PASS|FAIL)\s*│",
    "adapter": r"Trainable parameters: ([1-9][\d,]*)",
    "saved": r"^jobspec: complete checkpoint \S*/step_(\d+)$",
}
MAX_LINES = 200  # kept for each pattern

Lines = Mapping[str, tuple[EvidenceItem, ...]]


def judge(evidence: Evidence) -> Iterator[Deliverable]:
    """The guide's deliverables, and what the chosen variants add to them."""
    chosen = [BY_NAME[name] for name in evidence.plan.expect.variants if name in BY_NAME]
    logs = {item.name: read_lines(evidence, item.name, item) for item in chosen}
    yield Deliverable(CHECKS, Status.NOT_REQUESTED, reason="they are no part of this run", required=False)
    yield judge_bridge(evidence)
    yield _all(POLICY, [policy_problem(evidence, v, logs[v.name]) for v in chosen], "steps ran on Megatron")
    yield _all(VARIANTS, [variant_problem(v, logs[v.name]) for v in chosen], "each variant left its proof")
    yield _all(CAPTURE, [capture_problem(evidence, v, logs[v.name]) for v in chosen], "all finite")
    yield _all(IMPORT, [import_problem(v, logs[v.name]) for v in chosen], "weights were converted anew")
    for variant in chosen:
        if variant.saves:
            problem, items = saved_problem(variant, logs[variant.name])
            yield _all(CHECKPOINT, [(problem, items)], f"step {variant.steps} is complete")
        if variant.name == "resume":
            yield _all(RESUME, [variant_problem(variant, logs[variant.name])], "saved, loaded, went on")
    if evidence.plan.expect.learning is not None:
        yield learning_deliverable(evidence)


Problem = tuple[str, tuple[EvidenceItem, ...]]


def _all(name: str, problems: list[Problem], proved: str) -> Deliverable:
    """`Pass` when there is something to judge, no problem, and evidence for each part."""
    if not problems:
        return Deliverable(name, Status.FAIL, reason="the plan names no known variant")
    bad = next((item for item in problems if item[0]), None)
    if bad is not None:
        return Deliverable(name, Status.FAIL, bad[1], bad[0])
    return Deliverable(name, Status.PASS, tuple(item for _, items in problems for item in items), proved)


def judge_bridge(evidence: Evidence) -> Deliverable:
    """`Pass` when the worker's interpreter finds `megatron.bridge` below the spec's checkout."""
    root = str(evidence.plan.expect.options.get("bridge") or "")
    if not root:
        reason = "no repository of the spec is Megatron-Bridge: the image's own was used"
        return Deliverable(BRIDGE, Status.NOT_REQUESTED, reason=reason, required=False)
    found = read_lines(evidence, PROBE).get("bridge", ())
    if not found:
        return Deliverable(BRIDGE, Status.FAIL, reason="nothing shows where `megatron.bridge` comes from")
    origin = found[-1].text.rpartition(" ")[2]
    if not PurePosixPath(origin).is_relative_to(root):
        return Deliverable(BRIDGE, Status.FAIL, found[-1:], f"it comes from {origin}, not from {root}")
    return Deliverable(BRIDGE, Status.PASS, found[-1:], f"it comes from {root}")


def policy_problem(evidence: Evidence, variant: Variant, lines: Lines) -> Problem:
    """Right trainer, right backend, every planned step, and the script's own check."""
    trainers = [item.text for item in lines.get("trainer", ())]
    kind = {"sync": "synchronous", "async": "async"}.get(variant.trainer, "")
    if kind and not any(f"Running {kind} GRPO" in text for text in trainers):
        return f"`{variant.name}`: the log has no start of the {kind} GRPO trainer", ()
    if not lines.get("megatron"):
        return f"`{variant.name}`: no Megatron worker reported a model: nothing shows the backend", ()
    planned = int(evidence.plan.expect.options.get("steps") or 0) if variant.steps_key else 0
    rows = metrics_of(evidence, variant).series("train/loss")
    missing = set(range(1, (planned or variant.steps) + 1)) - {row.step for row in rows}
    if missing:
        return f"`{variant.name}`: train step {min(missing)} logged no `train/loss`", lines["megatron"][:1]
    checks = lines.get("check", ())
    bad = tuple(item for item in checks if re.search(r"│\s*FAIL\s*│", item.text))
    if variant.checks and (bad or not checks):
        return f"`{variant.name}`: the script's metric checks {'failed' if bad else 'did not run'}", bad
    ends = (row_item(rows[0]), row_item(rows[-1]))
    return "", (*lines.get("trainer", ())[:1], *lines["megatron"][:1], *ends, *checks)


def variant_problem(variant: Variant, lines: Lines) -> Problem:
    """Every line that the variant must leave, and trained parameters of a LoRA adapter."""
    wanted = [*(["adapter"] if variant.lora else [])]
    wanted = wanted or ["megatron"]
    for label in wanted:
        if not lines.get(label):
            return f"`{variant.name}`: the log does not show {_NAMED.get(label, label)}", ()
    return "", tuple(lines[label][0] for label in wanted)


_NAMED = {"adapter": "a LoRA adapter with parameters to train", "megatron": "a Megatron worker"}


def capture_problem(evidence: Evidence, variant: Variant, lines: Lines) -> Problem:
    """Finite values throughout, which the script's `max()` does not see, and a gradient that is not zero."""
    table = metrics_of(evidence, variant)
    rows = [row for name in FINITE for row in table.series(name)]
    if not rows or not lines:
        return f"`{variant.name}`: metrics or log are missing", ()
    bad = next((row for row in rows if not math.isfinite(row.value)), None)
    if bad is not None:
        return f"`{variant.name}`: `{bad.metric}` of step {bad.step} is not a finite number", (row_item(bad),)
    norms = table.series("train/grad_norm")
    if norms and all(row.value == 0 for row in norms):
        return f"`{variant.name}`: every gradient was zero: nothing was trained", (row_item(norms[0]),)
    if variant.lora and not norms:
        return f"`{variant.name}`: no gradient norm was logged", ()
    return "", (row_item(rows[0]), row_item(rows[-1]))


def import_problem(variant: Variant, lines: Lines) -> Problem:
    """The conversion folder was this attempt's own, and nothing was in it at the first start."""
    used, skipped, built = (lines.get(name, ()) for name in ("import", "skipped", "megatron"))
    if not used or not built:
        return f"`{variant.name}`: the log does not show an import into this attempt's folder", ()
    if skipped and skipped[0].line < built[0].line:
        return f"`{variant.name}`: the import from Hugging Face was skipped", skipped[:1]
    return "", used[:1]


def saved_problem(variant: Variant, lines: Lines) -> Problem:
    """A complete checkpoint of the last step, seen after the script had ended."""
    found = tuple(item for item in lines.get("saved", ()) if item.text.endswith(f"/step_{variant.steps}"))
    return ("", found) if found else (f"no complete checkpoint of step {variant.steps} is left", ())


def metrics_of(evidence: Evidence, variant: Variant) -> Table:
    """The last attempt's metrics of one variant: each has its own folder."""
    rows = evidence.last.metrics.rows if evidence.last else ()
    part = f"/metrics/{variant.name}/"
    return Table(tuple(row for row in rows if part in f"/{row.source}"))


def read_lines(evidence: Evidence, command: str, variant: Variant | None = None) -> Lines:
    """Lines of a command's log in the last attempt by pattern; empty without a readable log."""
    log = evidence.last.log(command) if evidence.last else None
    if log is None:
        return {}
    wanted = PATTERNS
    patterns = {name: re.compile(pattern) for name, pattern in wanted.items()}
    found: dict[str, list[EvidenceItem]] = {}
    try:
        with Path(evidence.root, log.path).open(encoding="utf-8", errors="replace") as file:
            for number, raw in enumerate(file, 1):
                line = strip_ansi(raw)
                for name, pattern in patterns.items():
                    if len(found.get(name, ())) < MAX_LINES and pattern.search(line):
                        found.setdefault(name, []).append(EvidenceItem(log.path, number, line))
    except OSError:
        return {}
    return {name: tuple(items) for name, items in found.items()}
