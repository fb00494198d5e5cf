"""Landmarks: lines that show how far a run had come. A failure's meaning depends on those before it.

A search for literal texts, block by block, finds them: a few fast searches, and no pattern per line.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from jobspec.log_search import line_at
from jobspec.log_text import bare

PART_BYTES = 20_000  # read of one state of a progress bar, or of a line without one
MAX_TRIES = 100  # lines of a block that hold a literal and turn out to be something else


@dataclass(frozen=True)
class Landmark:
    """A place in one log. `time` is None where the log has none near it."""

    line: int
    time: float | None = None


@dataclass(frozen=True)
class Kind:
    """Lines that hold the literal and, where there is one, match the pattern."""

    literal: bytes
    pattern: re.Pattern[str] | None = None


def _kind(literal: str, pattern: str = "") -> Kind:
    return Kind(literal.encode(), re.compile(pattern) if pattern else None)


# In these runs Megatron-Bridge may build the model: an earlier failure is not Megatron-Bridge's.
MANAGED = (
    _kind("MegatronPolicyWorker"),
    _kind("verl.trainer.main_ppo"),
    _kind("(TaskRunner pid="),
    _kind("(TaskRunnerV1 pid="),
    _kind("nemo_rl"),
)
# The model's construction has begun. Source: verl 0.7 to 0.10 `workers/engine/megatron`, `fsdp_workers.py`,
# NeMo-RL of 2026-08 `models/megatron/setup.py`, `models/automodel/setup.py`, transformers' loader.
CONSTRUCTION = (
    _kind("Enabling LORA with rank"),
    _kind("TF config:"),
    _kind("module: ", r"^(?:actor_)?module: \d"),
    _kind("Using default megatron checkpoint dir"),
    _kind("time to initialize megatron"),
    _kind(" parameters", r"^\w+ contains [\d.]+[MBK]? parameters"),
    _kind("wrap_policy: "),
    _kind("Initializing empty model for FSDP"),
    _kind("Loading checkpoint shards: "),
)
# Trainer workers are complete: next comes the rollout's start or a training step.
BUILT = (
    _kind("actor and ref model engine initialized"),
    _kind("Model, optimizer, and learning rate scheduler built"),
    _kind("init policy/ref/critic models done"),
    _kind("SETUP COMPLETE"),
    _kind("***** Running training *****"),
)
# A training step is done. Progress bars do not count: a dying program draws them once more.
STEP = (
    _kind("step:", r"^step:[1-9]\d* - .*\btraining/global_step\b"),
    _kind("Total step time: "),
    _kind("'loss': ", r"^\{.*'loss': "),
    _kind("Finished: 'step'"),  # SkyRL
    _kind("Global step ", r"Global step [1-9]\d*: \{"),  # OpenRLHF
    _kind("elapsed time per iteration", r"\biteration +[1-9]"),  # Megatron-LM
    # Trainers of one's own, and slime: a number of the step, and what it earned or lost.
    _kind("loss", r"(?i)\b(?:step|iter|iteration)[ :=#/]{1,3}[1-9]\d*\b.*loss\b\S{0,3}[ :=]+-?[\d.]"),
)
# The program has reached its end: later complaints come from its shutdown.
DONE = (
    _kind("Max number of steps has been reached"),
    _kind("GRPO training complete!"),
    _kind("Final validation metrics:"),
    _kind("'train_runtime': "),
    _kind("Training done!", r"\bskyrl\.train\.\w+:train:\d+ - Training done!"),
)

ALL = (*MANAGED, *CONSTRUCTION, *BUILT, *STEP, *DONE)


def find_first(block: bytes, kinds: tuple[Kind, ...]) -> int:
    """Where in the block the first line of these kinds starts, -1 when there is none."""
    return min((at for kind in kinds if (at := _first(block, kind)) >= 0), default=-1)


def find_last(block: bytes, kinds: tuple[Kind, ...]) -> int:
    """Where in the block the last line of these kinds starts, -1 when there is none."""
    return max((_last(block, kind) for kind in kinds), default=-1)


def _first(block: bytes, kind: Kind) -> int:
    at = block.find(kind.literal)
    for _ in range(MAX_TRIES):
        if at < 0:
            break
        start, end = line_at(block, at)
        if _shows(block[start:end], kind):
            return start
        at = block.find(kind.literal, end)
    return -1


def _last(block: bytes, kind: Kind) -> int:
    at = block.rfind(kind.literal)
    for _ in range(MAX_TRIES):
        if at < 0:
            break
        start, end = line_at(block, at)
        if _shows(block[start:end], kind):
            return start
        at = block.rfind(kind.literal, 0, start)
    return -1


def _shows(line: bytes, kind: Kind) -> bool:
    if kind.pattern is None:
        return True
    parts = (part[:PART_BYTES] for part in line.split(b"\r") if kind.literal in part)
    return any(kind.pattern.search(bare(part.decode("utf-8", "replace"))) for part in parts)
