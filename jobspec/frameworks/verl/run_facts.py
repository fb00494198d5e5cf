"""The evidence of a verl run as the judge looks at it: metrics, and facts of all logs together."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING

from jobspec.frameworks.verl.levels import LORA, MEGATRON
from jobspec.frameworks.verl.log_lines import LogFacts, read_logs
from jobspec.frameworks.verl.printed_config import Setting
from jobspec.metrics import concat, read_console
from jobspec.verdict import EvidenceItem

if TYPE_CHECKING:
    from jobspec.evidence.evidence import Evidence

STEP, KL, GRAD = "training/global_step", "actor/kl_loss", "actor/grad_norm"
REWARD = "critic/rewards/mean"


@dataclass(frozen=True)
class Seen:
    """The evidence with its metrics complete, and what the logs say."""

    evidence: Evidence
    logs: tuple[LogFacts, ...]

    def values(self, key: str) -> list[Setting]:
        """What each log's strongest source shows for a key of verl's configuration or a script's variable."""
        return [setting for facts in self.logs for setting in facts.settings.values(key)]

    def proved(self, key: str) -> list[Setting]:
        """What each log shows for a key by verl's own words; see `Settings.proved`."""
        return [setting for facts in self.logs for setting in facts.settings.proved(key)]

    @property
    def has_whole_config(self) -> bool:
        """Whether a log holds verl's resolved configuration: a key that it lacks is not there."""
        return any(facts.settings.config for facts in self.logs)

    def wrapped(self, fsdp: bool) -> EvidenceItem | None:
        """A worker's line that names the class around the model: Megatron-FSDP's, or DDP's."""
        pairs = (pair for facts in self.logs for pair in facts.wrappers)
        return next((item for name, item in pairs if (name != "DistributedDataParallel") is fsdp), None)

    def any_line(self, name: str) -> EvidenceItem | None:
        """The first log's line for the fact called `name`."""
        return next((item for facts in self.logs if (item := getattr(facts, name)) is not None), None)

    @property
    def resumed(self) -> LogFacts | None:
        """The log of the process that went on from a checkpoint."""
        return next((facts for facts in self.logs if facts.resumed), None)

    @cached_property
    def trained(self) -> dict[int, EvidenceItem]:
        """Steps with proof that they were trained. A validation alone logs no `training/global_step`.

        Forks that have no such metric, as EasyR1, log a gradient at each step.
        """
        table = self.evidence.metrics
        counted = [row for row in table.series(STEP) if row.value == row.step]
        fork = self.evidence.foreign and not table.series(STEP)
        steps = {
            row.step: EvidenceItem(row.source, row.line, f"step {row.step}", row.metric, row.value)
            for row in (table.series(GRAD) if fork else counted)
            if row.step is not None
        }
        for facts in self.logs:
            steps.update(facts.trained)
        return dict(sorted(steps.items()))

    @cached_property
    def planned(self) -> int:
        """Steps that the run was to do.

        For files that jobspec did not make, the run's own configuration has the number: the run may have died
        at the last logged step.
        """
        expect = self.evidence.plan.expect
        if not self.evidence.foreign:
            return expect.steps
        shown = [setting.value for setting in self.values("trainer.total_training_steps")]
        totals = [int(value) for value in shown if value.isdecimal()]
        stated = expect.options.get("steps")
        if isinstance(stated, int) and stated > 0:
            return stated
        return max([*totals, *self.trained, 0])

    @property
    def asks_lora(self) -> bool:
        """Whether an adapter was to be trained: by the plan, else by the run's own configuration."""
        planned = self.evidence.plan.expect.options.get("lora_rank")
        if planned is not None:
            return bool(planned)
        if "lora" in self.evidence.plan.expect.variants:
            return True
        ranks = [setting.value for setting in self.values(LORA)]
        return any(rank.isdecimal() and rank != "0" for rank in ranks)

    @property
    def adapter(self) -> EvidenceItem | None:
        """A line that shows an adapter with trainable parameters."""
        return next((item for count, item in self._adapters if count), None)

    @property
    def frozen_adapter(self) -> EvidenceItem | None:
        """A line that counts no trainable parameter, where no other line counts any."""
        return None if self.adapter else next((item for _, item in self._adapters), None)

    @property
    def _adapters(self) -> Iterator[tuple[float, EvidenceItem]]:
        return (pair for facts in self.logs for pair in facts.adapters)

    @property
    def has_critic(self) -> bool:
        planned = self.evidence.plan.expect.options.get("critic")
        if planned is not None:
            return bool(planned)
        estimators = [setting.value for setting in self.values("algorithm.adv_estimator")]
        if estimators:
            return "gae" in estimators
        return bool(self.evidence.metrics.series("critic/vf_loss"))

    def actor_size(self, name: str) -> list[Setting]:
        return self.proved(f"{MEGATRON}.{name}")


def see(evidence: Evidence) -> Seen:
    """Metrics come from the file logger; where it left none, from what the console printed."""
    attempt = evidence.last
    if attempt is None:
        return Seen(evidence, ())
    names = [log.path for log in attempt.own_logs]
    logs = read_logs(evidence.root, names)
    # What the console of others' runs printed is among their metrics already.
    if not evidence.foreign and not evidence.metrics.series(STEP):
        printed = concat([read_console(evidence.root / name, name) for name in names])
        last = replace(attempt, metrics=concat([attempt.metrics, printed]))
        evidence = replace(evidence, attempts=(*evidence.attempts[:-1], last))
    return Seen(evidence, logs)
