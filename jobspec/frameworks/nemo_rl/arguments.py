"""A spec's settings as NeMo-RL's own `key=value` arguments."""

from __future__ import annotations

from collections.abc import Iterator

from jobspec.frameworks.base import Context
from jobspec.frameworks.nemo_rl.variant import Variant
from jobspec.frameworks.shared.nemo_recipe import ENGINE, SIZES, value_text
from jobspec.frameworks.shared.nemo_trainer_shape import SEQUENCE_PARALLEL

DIVISOR = "policy.make_sequence_length_divisible_by"
PACKING = "policy.sequence_packing.enabled"


def overrides(context: Context, variant: Variant) -> tuple[str, ...]:
    """Literal arguments, later ones win: the variant's, steps, sizes, the spec's own."""
    # A script knows only its own number of steps, so a longer run needs the argument.
    longer = variant.is_entry or variant.learning
    steps = context.spec.train.steps or (variant.steps if longer else None)
    length = (f"{variant.steps_key}={steps}",) if steps and variant.steps_key else ()
    sizes = tuple(_sizes(context)) if variant.sizes else ()
    own = tuple(f"{key}={value_text(value)}" for key, value in context.spec.train.overrides.items())
    return (*variant.overrides, *length, *sizes, *own)


def _sizes(context: Context) -> Iterator[str]:
    """All sizes once the spec sets one, so that none of the recipe's is left, and what they need."""
    parallel, rollout = context.spec.train.parallel, context.spec.train.rollout
    if gives_sizes(context):
        yield from (f"{key}={getattr(parallel, name)}" for name, key in SIZES.items())
        # Megatron-Core refuses a mixture of experts with tensor but without sequence parallelism.
        sequence = parallel.tp > 1 and parallel.ep > 1
        yield f"{SEQUENCE_PARALLEL}={value_text(sequence)}"
        if parallel.cp > 1:
            yield f"{PACKING}=true"
        # Each packed sequence is split over cp twice, and over tp with sequence parallelism.
        yield f"{DIVISOR}={parallel.tp * (2 * parallel.cp if parallel.cp > 1 else 1)}"
    for name, key in ENGINE.items():
        if (size := getattr(rollout, name)) is not None:
            yield f"{key}={size}"


def gives_sizes(context: Context) -> bool:
    return any(getattr(context.spec.train.parallel, name) != 1 for name in SIZES)
