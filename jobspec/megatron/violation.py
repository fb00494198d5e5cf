"""What a rule reports, and the search for values that it would accept."""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import chain
from typing import Any, TypeVar

from jobspec.megatron.architecture import Architecture
from jobspec.megatron.fits import suits
from jobspec.megatron.shape import TrainShape

T = TypeVar("T")
MOST = 4096  # how far above a batch's own size is looked
LOOK = 2048  # how many values on either side are tried


@dataclass(frozen=True)
class Violation:
    """One broken condition. `nearest` maps a field to values of it that satisfy the rule, others unchanged.

    `field` is where the finding points to; `fix` says what to do where no single value helps.
    """

    field: str
    what: str
    nearest: Mapping[str, tuple[Any, ...]] = dataclasses.field(default_factory=dict)
    fix: str = ""


def with_value(shape: TrainShape, name: str, value: Any) -> TrainShape:
    """The shape with one field changed; `rollout.tp` is a field of the rollout."""
    if name.startswith("rollout.") and shape.rollout is not None:
        rollout = _changed(shape.rollout, name.removeprefix("rollout."), value)
        return _changed(shape, "rollout", rollout)
    return _changed(shape, name, value)


def _changed(frozen: T, name: str, value: Any) -> T:
    """A copy with one field changed. `dataclasses.replace` reads every field, which would slow the search."""
    made = copy.copy(frozen)
    object.__setattr__(made, name, value)
    return made


def _value(shape: TrainShape, name: str) -> int:
    if name.startswith("rollout."):
        return int(getattr(shape.rollout, name.removeprefix("rollout.")) or 1)
    return int(getattr(shape, name) or (shape.expert_tp if name == "etp" else 1))


def near(
    shape: TrainShape, arch: Architecture | None, valid: Callable[[TrainShape], bool], *names: str
) -> dict[str, tuple[int, ...]]:
    """For each field the closest valid value below and above its own, where there is one.

    Values that suit the grids and the model come first; without any, values that break another rule.
    """
    nearest = {}
    for name in names:
        values = _closest(shape, name, lambda s: valid(s) and suits(s, arch)) or _closest(shape, name, valid)
        if values:
            nearest[name] = values
    return nearest


def _closest(shape: TrainShape, name: str, valid: Callable[[TrainShape], bool]) -> tuple[int, ...]:
    """Of absurd sizes only values nearby are tried, and powers of two."""
    now, most = _value(shape, name), _most(shape, name)
    top = min(now, most)
    powers = [2**power for power in range(top.bit_length())]
    below = chain(
        range(top - 1, max(0, top - LOOK), -1), reversed([one for one in powers if one <= top - LOOK])
    )
    above = range(now + 1, min(most, now + LOOK))
    found = (
        next((value for value in side if valid(with_value(shape, name, value))), None)
        for side in (below, above)
    )
    return tuple(value for value in found if value is not None)


def _most(shape: TrainShape, name: str) -> int:
    """No degree of parallelism can be larger than the number of GPUs."""
    if name in ("nodes", "gpus_per_node"):
        return _value(shape, name) * 16 + 64
    if name in ("global_batch", "train_batch", "samples_per_prompt", "micro_batch"):
        return _value(shape, name) * 2 + MOST
    return max(shape.world, shape.rollout.nodes * shape.gpus_per_node if shape.rollout else 0) + 1
