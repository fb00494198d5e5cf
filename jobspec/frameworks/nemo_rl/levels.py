"""NeMo-RL's coverage levels as data: which maintained script or recipe proves what.

Source: NeMo-RL at 7ea279ab (2026-08-22): `tests/functional`, `tests/test_suites`, `examples/configs`. Every
script, recipe and key is looked up again in the checkout at hand. Data plane and router replay are runtime
paths of their own, as the architectures are: both belong to level 5, `features`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from jobspec.frameworks.base import Level, VariantNote
from jobspec.frameworks.nemo_rl.proof_lines import PROOFS
from jobspec.frameworks.nemo_rl.variant import MetricCheck, Variant
from jobspec.frameworks.nemo_rl.variant_parts import MEGATRON_CONFIG
from jobspec.frameworks.nemo_rl.variants_level0_1_4_6 import CORE, LEARNING, PARALLEL, STATE
from jobspec.frameworks.nemo_rl.variants_level2_3 import GENERATION, REFIT
from jobspec.frameworks.nemo_rl.variants_level5 import FEATURES

__all__ = [
    "BY_NAME",
    "FINITE",
    "LEVELS",
    "MEGATRON_CONFIG",
    "VARIANTS",
    "MetricCheck",
    "Variant",
    "variants_of",
]

FINITE = (
    "train/loss",
    "train/reward",
    "train/grad_norm",
    "train/token_mult_prob_error",
    "train/gen_kl_error",
    "train/probs_ratio_clamped_min",
    "train/probs_ratio_clamped_max",
    "train/draft_loss",
)

VARIANTS = (*CORE, *STATE, *REFIT, *GENERATION, *PARALLEL, *FEATURES, *LEARNING)
BY_NAME: Mapping[str, Variant] = {item.name: item for item in VARIANTS}

NO_LEARNING = "nothing is proved about learning"
SMALL = "the small models of the tests stand for no other size"


def _level(name: str, number: int, proves: str, *not_proved: str) -> Level:
    mine = [item for item in VARIANTS if item.level == number]
    needs = "a NeMo-RL checkout, its image or environments, and the data set of the recipe"
    names, notes = tuple(item.name for item in mine), tuple(_note(item) for item in mine)
    return Level(name, number, proves, not_proved, names, needs, notes)


def _note(variant: Variant) -> VariantNote:
    about = f"{variant.proves}; runs `{variant.script}`"
    if variant.is_entry:
        about += f" with `{variant.config.rpartition('/')[2]}`"
    nodes = _count(variant.nodes, "node") if variant.nodes else "any number of nodes"
    needs = [f"{nodes} with {_count(variant.gpus, 'GPU')}, `{variant.model}`"]
    needs += [variant.network] if variant.network else []
    return VariantNote(variant.name, about, "; ".join(needs), "; ".join(_proof(variant)))


def _proof(variant: Variant) -> Iterator[str]:
    yield f"{_count(variant.steps, 'finished step')} on Megatron"
    lines = [PROOFS[name] for name in variant.proofs]
    shown = ["a LoRA adapter with parameters to train"] if variant.lora else []
    shown += [line.shows for line in lines if not line.forbidden]
    shown += [f"not {line.shows}" for line in lines if line.forbidden]
    if shown:
        yield f"in the log {', '.join(shown)}"
    if variant.saves:
        yield "a complete checkpoint"
    yield from (check.words for check in variant.checks)


def _count(number: int, what: str) -> str:
    return f"{number} {what}{'' if number == 1 else 's'}"


LEVELS = (
    _level(
        "smoke",
        0,
        "GRPO steps ran on Megatron with a fresh import from Hugging Face weights",
        NO_LEARNING,
        SMALL,
        "checkpoints are off, parallel sizes are 1, text only",
    ),
    _level(
        "lora",
        1,
        "the chosen script trained a LoRA adapter on Megatron, or saved and resumed",
        NO_LEARNING,
        SMALL,
        "only `resume`, `async-checkpoint` and `single-controller-checkpoint` load what was saved",
    ),
    _level("refit", 2, "weights moved from Megatron to a generator on other GPUs", NO_LEARNING),
    _level("generation", 3, "Megatron generated the completions that it trained on", NO_LEARNING, SMALL),
    _level(
        "parallel",
        4,
        "the chosen parallel sizes trained",
        NO_LEARNING,
        "only `ep` and `ep16` use expert parallelism and several nodes",
    ),
    _level("features", 5, "the chosen architecture or runtime path was really used", NO_LEARNING),
    _level("learning", 6, "the asked metric moved in the asked direction beyond its noise", "one seed"),
)


def variants_of(level: int, asked: tuple[str, ...]) -> tuple[Variant, ...]:
    """The asked variants of a level, without any its first; unknown names are left out."""
    known = [item for item in VARIANTS if item.level == level]
    return tuple(item for item in known if item.name in asked) if asked else tuple(known[:1])
