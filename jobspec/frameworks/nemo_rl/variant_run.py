"""What the files show of one variant's run: lines, metrics and steps. Reads logs, judges nothing.

Answers about the run are made here, so that each names its variant.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path, PurePath
from typing import TYPE_CHECKING

from jobspec.frameworks.nemo_rl.levels import VARIANTS
from jobspec.frameworks.nemo_rl.log_lines import Line, Lines, numbers, read_lines
from jobspec.frameworks.nemo_rl.printed_config import PEFT, Settings, read_settings
from jobspec.frameworks.nemo_rl.proof_lines import PROOFS, TRAINERS
from jobspec.frameworks.nemo_rl.properties import planned as planned_variants
from jobspec.frameworks.nemo_rl.variant import Variant
from jobspec.frameworks.shared import answer
from jobspec.frameworks.shared.answer import Answer
from jobspec.frameworks.shared.metric_deliverables import row_item
from jobspec.metrics import Table
from jobspec.verdict import EvidenceItem

if TYPE_CHECKING:
    from jobspec.evidence.evidence import Evidence, LogFile

LOSS = "train/loss"
STEP_LINES = ("step", "sc-step")  # printed for a completed step; a header is printed at its start
MAX_DEPTH = 6  # folders searched below other people's files


@dataclass(frozen=True)
class VariantRun:
    """One variant as the last attempt left it. `tables` are its metric files by name.

    `guessed` marks a variant that the user did not name; any trainer of GRPO then counts. Where the files
    show none, it is not `known` which one ran, and no answer names one.
    """

    variant: Variant
    evidence: Evidence
    lines: Lines = field(default_factory=dict)
    logs: tuple[LogFile, ...] = ()
    tables: tuple[tuple[str, Table], ...] = ()
    guessed: bool = False
    known: bool = True

    @property
    def name(self) -> str:
        return self.variant.name

    @property
    def foreign(self) -> bool:
        return self.evidence.foreign

    def _of_it(self, reason: str) -> str:
        return f"`{self.name}`: {reason}" if self.known and reason else reason

    def passed(self, reason: str = "", items: Sequence[EvidenceItem] = ()) -> Answer:
        return answer.passed(self._of_it(reason), items)

    def failed(self, reason: str, items: Sequence[EvidenceItem] = ()) -> Answer:
        """The answer to a fault that the files show."""
        return answer.failed(self._of_it(reason), items)

    def blocked(self, reason: str, items: Sequence[EvidenceItem] = ()) -> Answer:
        """The answer where a cause outside of the tested code hides the proof."""
        return answer.blocked(self._of_it(reason), items)

    def not_tested(self, reason: str, items: Sequence[EvidenceItem] = ()) -> Answer:
        """The answer where something else than what the variant tests ran."""
        return answer.not_tested(self.foreign, self._of_it(reason), items)

    def unseen(self, reason: str, items: Sequence[EvidenceItem] = ()) -> Answer:
        """The answer where no file shows it: a failure of our own runs, whose files are whole, else blocked.

        Without `items` the evidence is the searched log.
        """
        evidence = tuple(items) or tuple(EvidenceItem(log.path) for log in self.logs[:1])
        if not self.foreign and any(log.bytes for log in self.logs):
            return self.failed(reason, evidence)
        return self.blocked(f"not shown: {reason}", evidence)

    @property
    def claim(self) -> str:
        """What a pass says; where nobody named the variant, no more than how it was found."""
        return "the log holds what tells this variant" if self.guessed else self.variant.proves

    @property
    def skipped(self) -> Line | None:
        """The line that names the maintainers' rule by which the script was skipped."""
        return next(iter(self.lines.get("skipped", ())), None)

    @property
    def other_backend(self) -> tuple[Line, ...]:
        """Lines that show a policy on DTensor, of a run that shows no model that Megatron built."""
        if self.lines.get("built"):
            return ()
        off = () if self.lines.get("megatron-on") else self.lines.get("megatron-off", ())
        return tuple(self.lines.get("dtensor") or off)

    def values(self, key: str) -> tuple[str, ...]:
        """Every value that the printed settings show for a dotted key."""
        return self.settings.get(key, ())

    @property
    def exit_code(self) -> int | None:
        """The command's exit code; None where no file states it."""
        command = self.evidence.last.command(self.name) if self.evidence.last else None
        return command.exit_code if command else None

    @cached_property
    def loaded(self) -> dict[int, EvidenceItem]:
        """Steps whose checkpoint Megatron-Bridge loaded."""
        return numbers(self.lines, "loaded", 1)

    @cached_property
    def logged(self) -> dict[int, EvidenceItem]:
        """Train steps with a loss among the metrics."""
        rows = (row for _, table in self.tables for row in table.series(LOSS))
        return {row.step: row_item(row) for row in rows if row.step}

    @cached_property
    def printed(self) -> dict[int, EvidenceItem]:
        """Train steps that the logs show as completed; for other people's files also those with samples."""
        lines = {step: item for name in STEP_LINES for step, item in numbers(self.lines, name).items()}
        return {**self.dumped, **lines} if self.foreign else lines

    @cached_property
    def dumped(self) -> dict[int, EvidenceItem]:
        """Steps with a file of samples, which NeMo-RL writes when the step has ended."""
        samples: dict[int, EvidenceItem] = {}
        for path in find_below(self.evidence.root, "train_data_step*.jsonl"):
            number = path.stem.removeprefix("train_data_step")
            if number.isdecimal():
                samples.setdefault(int(number), EvidenceItem(str(path.relative_to(self.evidence.root))))
        return samples

    @cached_property
    def steps(self) -> dict[int, EvidenceItem]:
        """Every completed train step in logs or metrics."""
        return {**self.printed, **self.logged}

    @cached_property
    def settings(self) -> Settings:
        """The settings that the logs show."""
        return read_settings(self.lines)

    def own_steps(self, load: Line) -> tuple[Line, ...]:
        """Completed train steps of the process that loaded a checkpoint.

        They follow the load in its log, up to where the next process begins. Another log counts where it
        begins after the loaded step: it has no step of the process that saved it.
        """
        end = _next_process(self.lines, load)
        after, loaded = [], int(load.groups[1])
        for name in (*STEP_LINES, "saving"):
            lines = self.lines.get(name, ())
            first = {line.file: int(line.groups[0]) for line in reversed(lines)}
            for line in lines:
                own = line.file == load.file and load.number < line.number < end
                if own or (line.file != load.file and first[line.file] > loaded):
                    after.append(line)
        return tuple(after)

    @property
    def began(self) -> bool:
        """Whether the logs show the begin of a train step: metrics alone may be another process's."""
        return any(self.lines.get(name) for name in ("header", *STEP_LINES))

    @cached_property
    def planned(self) -> int:
        """The number of planned steps; for other people's runs without one, what the trainer announced."""
        requested = int(self.evidence.plan.expect.options.get("steps") or 0)
        if not self.foreign:
            return (requested if self.variant.steps_key else 0) or self.variant.steps
        announced = [*numbers(self.lines, "header", 1), *numbers(self.lines, "sc-step", 1)]
        return requested or max(announced, default=self.variant.steps)

    def table(self, file: str) -> Table | None:
        return next((table for name, table in self.tables if name == file), None)


def runs_of(evidence: Evidence) -> tuple[VariantRun, ...]:
    """The runs of the planned variants; for other people's files without one, the variant that fits best."""
    planned = planned_variants(evidence.plan.expect)
    if not evidence.foreign:
        return tuple(_own(evidence, variant, len(planned) == 1) for variant in planned)
    logs = tuple(evidence.last.logs if evidence.last else ())
    lines = _read(evidence, logs)
    if planned:
        return tuple(VariantRun(v, evidence, lines, logs, _tables(evidence, v)) for v in planned)
    candidates = [item for item in VARIANTS if item.level == (evidence.plan.expect.number or 0)]
    lora = "true" in map(str.lower, read_settings(lines).get(PEFT, ())) or bool(lines.get("adapter"))
    candidates = [item for item in candidates if item.lora == lora] or candidates
    shown = next((item for item in candidates if shows(item, lines)), None)
    variant = shown or candidates[0]
    known, tables = lora or shown is not None, _tables(evidence, variant)
    return (VariantRun(variant, evidence, lines, logs, tables, guessed=True, known=known),)


def _next_process(lines: Lines, load: Line) -> float:
    """The line at which the process after that of `load` begins in the same log; infinite without one."""

    def after(names: Sequence[str], number: float) -> float:
        own = (line.number for name in names for line in lines.get(name, ()) if line.file == load.file)
        return min((at for at in own if at > number), default=math.inf)

    step = after((*STEP_LINES, "saving", "header"), load.number)
    return min(after(("launch",), load.number), after(("loaded", "trainer"), step))


def shows(variant: Variant, lines: Lines) -> bool:
    """Whether the lines hold every proof of this variant and the start of its trainer."""
    pattern = TRAINERS.get(variant.trainer)
    trained = [line.item.text for line in lines.get("trainer", ())]
    if pattern is not None and not any(pattern.search(text) for text in trained):
        return False
    if pattern is None and (trained or not _configured_for(variant.trainer, lines)):
        return False
    required = [name for name in variant.proofs if not PROOFS[name].forbidden]
    required += ["adapter"] if variant.lora else []
    return bool(required or pattern is not None) and all(lines.get(name) for name in required)


def _configured_for(trainer: str, lines: Lines) -> bool:
    """Whether the configuration is one for this trainer, by its section, an override or its file's name.

    Other words say nothing: DPO's section has `sft_loss_weight`, and its model may be called so.
    """
    if any(key.startswith(f"{trainer}.") for key in read_settings(lines)):
        return True
    word = re.compile(rf"(?<![a-z]){trainer}(?![a-z])", re.IGNORECASE)
    return any(word.search(PurePath(line.item.text).name) for line in lines.get("launch", ()))


def _own(evidence: Evidence, variant: Variant, alone: bool) -> VariantRun:
    """A run of ours, whose log and folder of metrics have the variant's name."""
    attempt = evidence.last
    logs = [log for log in (attempt.logs if attempt else ()) if Path(log.path).stem == variant.name]
    if not logs and alone and attempt is not None:
        # The framework's own batch script chooses the names of its logs.
        logs = list(attempt.own_logs)
    return VariantRun(variant, evidence, _read(evidence, logs), tuple(logs), _tables(evidence, variant))


def _read(evidence: Evidence, logs: Sequence[LogFile]) -> Lines:
    return read_lines([(Path(evidence.root, log.path), log.path) for log in logs])


def _tables(evidence: Evidence, variant: Variant) -> tuple[tuple[str, Table], ...]:
    """The variant's metrics by file; without such a file, those of event files and files of other names."""
    rows, names = (evidence.last.metrics.rows, evidence.last.metrics.names) if evidence.last else ((), {})
    if not evidence.foreign:
        part = f"/metrics/{variant.name}/"
        rows = tuple(row for row in rows if part in f"/{row.source}")
    tables = []
    for name in variant.metrics:
        own = tuple(row for row in rows if f"/{row.source}".endswith(f"/{name}"))
        if own:
            tables.append((name, Table(own, names=names)))
    if tables or not rows:
        return tuple(tables)
    kept = tuple(row for row in rows if row.metric.startswith(("train/", "validation/", "refit/")))
    return (("", Table(kept, names=names)),) if kept else ()


def unfinished_checkpoints(evidence: Evidence) -> Iterator[Path]:
    """Folders `tmp_step_N` below the files: saves that never ended."""
    yield from (path for path in find_below(evidence.root, "tmp_step_*") if path.is_dir())


def find_below(root: Path, pattern: str) -> Iterator[Path]:
    """Paths of that name, at most `MAX_DEPTH` folders down, by name."""
    for depth in range(MAX_DEPTH):
        yield from sorted(root.glob("*/" * depth + pattern))
