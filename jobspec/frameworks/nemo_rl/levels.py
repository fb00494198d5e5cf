"""NeMo-RL's coverage levels: which maintained script or recipe proves what. `variants.yaml` has the facts.

Importing this module reads the file; only a job or command that names the framework does so.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from jobspec.frameworks.base import Level, VariantNote
from jobspec.frameworks.nemo_rl.catalogue import load_catalogue
from jobspec.frameworks.nemo_rl.proof_lines import PROOFS
from jobspec.frameworks.nemo_rl.variant import ACTOR_INSTALL, LevelText, Variant

__all__ = ["BY_NAME", "LEVELS", "VARIANTS", "Variant", "variants_of"]

CATALOGUE = load_catalogue()
VARIANTS = CATALOGUE.variants
BY_NAME: Mapping[str, Variant] = {item.name: item for item in VARIANTS}


PARITY = "the model's own correctness: parity with Hugging Face belongs to the Bridge's own tests"


def _level(text: LevelText) -> Level:
    variants = [item for item in VARIANTS if item.level == text.number]
    needs = "a NeMo-RL checkout, its image or environments, and the data set of the recipe"
    names, notes = tuple(item.name for item in variants), tuple(_note(item) for item in variants)
    return Level(text.name, text.number, text.proves, (*text.not_proved, PARITY), names, needs, notes)


def _note(variant: Variant) -> VariantNote:
    about = f"{variant.proves}; runs `{variant.script}`"
    if variant.is_entry:
        about += f" with `{variant.config.rpartition('/')[2]}`"
    nodes = _count(variant.nodes, "node") if variant.nodes else "any number of nodes"
    needs = [f"{nodes} with {_count(variant.gpus, 'GPU')}, `{variant.model}`"]
    needs += [variant.network] if variant.network else []
    needs += [ACTOR_INSTALL] if variant.network_actors else []
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
    yield from (check.words for check in variant.metric_checks)


def _count(number: int, what: str) -> str:
    return f"{number} {what}{'' if number == 1 else 's'}"


LEVELS = tuple(_level(text) for text in CATALOGUE.levels)


def variants_of(level: int, requested: tuple[str, ...]) -> tuple[Variant, ...]:
    """The requested variants of a level, in the file's order; its first variant without a request."""
    known = [item for item in VARIANTS if item.level == level]
    return tuple(item for item in known if item.name in requested) if requested else tuple(known[:1])
