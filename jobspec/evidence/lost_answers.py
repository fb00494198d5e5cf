"""Answers that failed and were counted as a reward of 0 all the same, and those that were left out.

Only what the frameworks log and print: each row has the source it was read in. A run goes on over such losses
without an error, and its reward then is that of something else than one believes.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from jobspec.log_search import Hints, find_lines
from jobspec.log_text import RAY_REPEATED
from jobspec.metrics import Row, Table

ZERO, LEFT_OUT = "counted with a reward of 0", "left out"
UNCHECKED = "not compared with it"  # scored with a fixed value, or not at all
MOST = 0.5  # a reward of less than half of the answers shows nothing about all
SHOWN = 200


@dataclass(frozen=True)
class Lost:
    """`count` of `what` were lost, as the place shows; `share` of all, where the framework tells it."""

    what: str
    count: float
    fate: str
    file: str
    line: int
    text: str
    share: float | None = None

    def __str__(self) -> str:
        share = f" ({self.share:.1%} of all)" if self.share is not None else ""
        count = f"at least {self.count:.0f} " if self.count else ""
        return f"{count}{self.what}{share} were {self.fate}"


@dataclass(frozen=True)
class _Line:
    """`hint` is the text of the source without what it fills in."""

    hint: str
    what: str
    fate: str


@dataclass(frozen=True)
class _Metric:
    """A count of each step, or one that only grows (`total`), or a share of the step's answers (`share`).

    `name` is the whole name, or what stands behind a prefix of the framework's.
    """

    name: str
    what: str
    kind: str = "step"
    of: str = ""  # what was kept, by the same rule
    fate: str = LEFT_OUT


_LINES = (
    # verl 1dda039b9: experimental/reward_loop/reward_manager/limited.py, workers/reward_manager/naive.py
    _Line("Reward computation timed out after ", "rewards that were not computed in time", ZERO),
    _Line("Reward computation failed for data_source=", "rewards whose computation failed", ZERO),
    _Line("[NaiveRewardManager] compute_score exceeded", "rewards that were not computed in time", ZERO),
    # the same, in its trainer/ppo/v1/agent_loop_tq.py
    _Line("Error in _run_prompt", "prompts whose rollout failed", LEFT_OUT),
    # NeMo-RL 7ea279abf: experience/rollouts.py
    _Line("Error generating response for sample ", "answers whose generation failed", ZERO),
    # SkyRL a9564572e: its harbor and arctic_rl integrations, and skyrl/train/utils/trainer_utils.py
    _Line("will set loss mask to [0].", "trajectories that failed", LEFT_OUT),
    _Line("ArcticGenerator reward scoring failed", "batches with a reward whose computation failed", ZERO),
    _Line("All outputs are loss masked", "batches of answers", LEFT_OUT),
    # TRL 1.16.0: trainer/grpo_trainer.py
    _Line("All reward functions returned None for the following kwargs", "answers without any reward", ZERO),
    # open-r1 and what was made from it: the reward is None there, in older ones 1.0, in others 0
    _Line("Failed to parse gold solution", "answers whose reference solution was not parsed", UNCHECKED),
)  # fmt: skip
_METRICS = (
    _Metric("generate/num_error_trajectories", "trajectories that failed"),  # SkyRL
    _Metric("generate/num_timeout_trajectories", "trajectories that were not done in time"),
    _Metric("training/rollout_failure/evicted_samples", "prompts whose rollout failed"),  # verl
    _Metric("response/aborted_ratio", "answers that were aborted", "share",
            fate="left out of the reward's mean"),
    _Metric("rollout/infra_drops_total", "prompts that failed for a cause outside",
            "total", "rollout/committed_total"),  # NeMo-RL: experience/rollout_manager.py
    _Metric("rollout/data_failures_total", "prompts that failed each time", "total",
            "rollout/committed_total"),
    _Metric("num_masked_seqs_by_logprob_error",
            "answers to which engine and trainer give too different probabilities"),
)  # fmt: skip

_BY_HINT = {line.hint: line for line in _LINES}
_HINTS = Hints(_BY_HINT)


def in_logs(logs: Iterable[tuple[str, Path]]) -> tuple[Lost, ...]:
    """What the lines of the logs (name, path) tell.

    Several logs may hold the same lines: the one with the most lines of a kind counts, as the least number.
    """
    found: dict[str, Lost] = {}
    for name, path in logs:
        for hint, lost in _in_log(name, path).items():
            if hint not in found or lost.count > found[hint].count:
                found[hint] = lost
    return tuple(found.values())


def _in_log(name: str, path: Path) -> dict[str, Lost]:
    found: dict[str, Lost] = {}
    for number, text, held in find_lines(path, _HINTS):
        line = _BY_HINT[held[0]]
        again = RAY_REPEATED.search(text)  # counts the line at which it stands
        first = found.get(line.hint) or Lost(line.what, 0, line.fate, name, number, text[:SHOWN])
        found[line.hint] = replace(first, count=first.count + (int(again["times"]) if again else 1))
    return found


def in_metrics(table: Table) -> Iterator[Lost]:
    """What metrics tell that count losses."""
    for name in table.metrics:
        for metric in _METRICS:
            if name == metric.name or name.endswith(f"/{metric.name}"):
                rows = [row for row in table.series(name) if math.isfinite(row.value)]
                if any(row.value > 0 for row in rows):
                    yield _lost(metric, rows, table)


def _lost(metric: _Metric, rows: list[Row], table: Table) -> Lost:
    first, values = next(row for row in rows if row.value > 0), [row.value for row in rows]
    text = f"`{first.metric}` of step {first.step} is {first.value:g}"
    lost = Lost(metric.what, 0, metric.fate, first.source, first.line, text)
    if metric.kind == "share":
        return replace(lost, share=math.fsum(values) / len(values))
    count = max(values) if metric.kind == "total" else math.fsum(values)
    kept = table.values(first.metric.removesuffix(metric.name) + metric.of, finite=True) if metric.of else []
    return replace(lost, count=count, share=count / (count + max(kept)) if kept and max(kept) > 0 else None)


def most(lost: Iterable[Lost]) -> Lost | None:
    """The loss of more than half of all, where one is shown."""
    return next((one for one in lost if one.share is not None and one.share > MOST), None)
