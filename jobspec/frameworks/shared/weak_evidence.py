"""Settings that limit what a pass proves: one table of each framework, for specs and for printed settings."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from math import prod

from jobspec.finding import Finding, error
from jobspec.frameworks.base import Context
from jobspec.frameworks.shared.nemo_recipe import value_text

SEES = re.compile(
    r"(?:^|[-_/.\d])(?:vl\d?|vlm|vision|llava|omni|audio|pixtral|(?:intern|kimi-?)vl|idefics\d?)(?:$|[-_/.\d])",
    re.I,
)
RANDOM = re.compile(r"(?:^|[-_/])(?:tiny-?random|dummy|random-?(?:init|weights))", re.I)
EAGER = "the rollout engine ran without CUDA graphs"
ADAPTER = "only an adapter was trained: full-parameter training is not proved"
FROZEN = "the learning rate was 0: no parameter was changed, and no optimizer step is proved"

SIZES = {
    "expert_model_parallel_size": ("ep", "expert parallelism"),
    "tensor_model_parallel_size": ("tp", "tensor parallelism"),
    "pipeline_model_parallel_size": ("pp", "pipeline parallelism"),
    "context_parallel_size": ("cp", "context parallelism"),
}

SHARING = ("expert_model_parallel_size", "tensor_model_parallel_size", "pipeline_model_parallel_size")
SMALLEST_PUBLISHED = 100_000_000  # parameters; a smaller model was made for a test
# Megatron-Core prints it of each rank that shares a model; the last group is the number.
RANK_COUNT = (
    r" > number of parameters on \(tensor, (?:\w+, )?pipeline\) model parallel rank(?: \([\d, ]+\): (\d+))?"
)

Values = Callable[[str], Sequence[str]]


@dataclass(frozen=True)
class Weakness:
    """A value of one of `keys` that matches `value` limits a pass; `text` may hold `{key}` and `{value}`.

    `refused` marks values that void what a level tests: a spec may not set them. `where` is a key, the value
    that it must have for this to count, and its default.
    """

    keys: tuple[str, ...]
    value: str
    text: str
    refused: bool = False
    where: tuple[str, str, str] | None = None

    def found(self, values: Values) -> tuple[str, str] | None:
        """The key and its value, as they were set; None without such a value."""
        if self.where is not None and self.where[1] not in (values(self.where[0]) or self.where[2:]):
            return None
        shown = ((key, value) for key in self.keys for value in values(key))
        return next((pair for pair in shown if re.fullmatch(self.value, pair[1], re.IGNORECASE)), None)


def limits(table: Iterable[Weakness], values: Values) -> Iterator[str]:
    """What the settings leave unproved; `values` gives every value that is shown for a key."""
    for weakness in table:
        if pair := weakness.found(values):
            yield weakness.text.format(key=pair[0], value=pair[1])


def refused(context: Context, rule: str, table: Iterable[Weakness]) -> Iterator[Finding]:
    """Errors for the spec's overrides that void the evidence, with or without `+` before the key."""
    paths = {key.lstrip("+"): key for key in context.spec.train.overrides}
    for weakness in table:
        pair = weakness.found(override_values(context)) if weakness.refused else None
        if pair is not None:
            what = f"`{pair[0]}` = {pair[1]} voids what level `{context.level.name}` tests"
            why = weakness.text.format(key=pair[0], value=pair[1])
            yield error(rule, what, why, "remove it", path=f"train.overrides.{paths[pair[0]]}")


def override_values(context: Context) -> Values:
    """The values that the spec's overrides give to a key, written with or without `+`."""
    given = {key.lstrip("+"): value_text(value) for key, value in context.spec.train.overrides.items()}
    return lambda key: (given[key],) if key in given else ()


def model_limits(model: str, with_media: bool) -> Iterator[str]:
    """What the model's name says about its weights and inputs."""
    if RANDOM.search(model):
        yield f"by its name `{model}` has random weights: no compatibility with real weights is proved"
    if SEES.search(model) and not with_media:
        yield f"`{model}` takes images or sound, and jobspec read no setting for any: that path is not proved"


def made_for_a_test(parameters: float, bound: str = "") -> Iterator[str]:
    """What a model leaves unproved by its size: no published one is so small. `bound` may be `at most `."""
    if parameters < SMALLEST_PUBLISHED:
        yield f"a model of {bound}{parameters / 1e6:.1f} million parameters: the mechanics alone are shown"


def counted_limits(counts: Sequence[int], values: Values, prefix: str) -> Iterator[str]:
    """The same by Megatron's count of a rank, times all ranks that may share the model; no size, no claim."""
    shown = [values(f"{prefix}{name}") for name in SHARING]
    if counts and all(shown) and all(value.isdecimal() for value in chain.from_iterable(shown)):
        ranks = prod(max(map(int, size)) for size in shown)
        yield from made_for_a_test(max(counts) * ranks, "at most ")


def size_limits(values: Values, prefix: str) -> Iterator[str]:
    """Kinds of model parallelism that had a size of 1 wherever it is shown; the keys begin with `prefix`."""
    for name, (short, what) in SIZES.items():
        shown = values(f"{prefix}{name}")
        if shown and set(shown) == {"1"}:
            yield f"{short} = 1: no {what} is proved"
