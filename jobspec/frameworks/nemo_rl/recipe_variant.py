"""A recipe as a variant: the proofs that its configuration asks for, and the script's conditions that apply.

A run may be smaller than the recipe. A condition then applies only where the smaller run can meet it for the
same reason; the others are left out and named.
"""

from __future__ import annotations

from collections.abc import Iterator

from msgspec.structs import replace

from jobspec.frameworks.base import Context, RecipeNote
from jobspec.frameworks.nemo_rl.arguments import gives_sizes
from jobspec.frameworks.nemo_rl.printed_config import PEFT
from jobspec.frameworks.nemo_rl.proof_lines import SIZE_KEYS
from jobspec.frameworks.nemo_rl.properties import BACKENDS, ON_GRPO, REPLAY
from jobspec.frameworks.nemo_rl.recipes import Recipe, sizes_of
from jobspec.frameworks.nemo_rl.suite import Suite
from jobspec.frameworks.nemo_rl.train_shape import sized
from jobspec.frameworks.nemo_rl.variant import MODEL_KEYS, MetricCheck, Trainer, Variant, parse_condition
from jobspec.frameworks.shared.nemo_recipe import MEGATRON, Config, get, number

PRINTS_NOTHING: tuple[Trainer, ...] = ("distillation",)
FEATURES = {
    "non-colocated": ("policy.generation.colocated.enabled", False),
    "megatron-generation": ("policy.generation.backend", "megatron"),
    "reshard-transport": ("policy.generation.refit_transport", "nccl_reshard"),
    "fp8-rollout": ("policy.generation.vllm_cfg.precision", "fp8"),
    "fp8-training": ("policy.megatron_cfg.fp8_cfg.enabled", True),
    "draft-loss": ("policy.draft.enabled", True),
    "draft-refit": ("policy.draft.enabled", True),
}
"""What must be shown where a recipe's key has this value; `properties.py` adds the rest."""
# Agreement of the generator with the trainer: it must hold at every step of every size.
AGREEMENT = ("train/token_mult_prob_error", "train/gen_kl_error")
MACHINE = ("timing/", "ray/")  # seconds and bytes of the maintainers' machines at the recipe's own size
NEUTRAL = ("policy.train_micro_batch_size", "policy.logprob_batch_size", "data_plane.")  # how, not what
ENOUGH = {("max", "<"), ("max", "<="), ("min", ">"), ("min", ">=")}  # hold for fewer steps if they do for all


def recipe_variant(context: Context, recipe: Recipe) -> Variant:
    """The variant that runs a recipe at the asked level and size."""
    suite = recipe.suite or Suite()
    steps = context.spec.train.steps or recipe.steps
    readable, unreadable = _read(suite)
    return Variant(
        name=recipe.name,
        level=context.level.number,
        proves="the recipe trained",
        script=recipe.entry,
        config=recipe.config,
        steps=recipe.steps,
        steps_key=recipe.steps_key,
        overrides=suite.arguments,
        nodes=0,
        gpus=1,
        model=recipe.model,
        model_keys=MODEL_KEYS,
        trainer=recipe.trainer or "sync",
        env=dict(suite.env),
        sizes=True,
        learning=context.level.name == "learning",
        checks=tuple(check.text for check in readable if _applies(check, context, recipe, steps)),
        limitation="; ".join(_limits(context, recipe, unreadable)),
    )


def with_proofs(variant: Variant, composed: Config) -> Variant:
    """The recipe's variant with the lines that its log must hold, by the configuration with all arguments.

    An entry point that prints no settings shows none of them.
    """
    sizes = ", ".join(f"{name} {size}" for name, size in sizes_of(composed).items())
    proves = f"the recipe trained {f'with {sizes}' if sizes else 'without model parallelism'}"
    if variant.trainer in PRINTS_NOTHING:
        return replace(variant, proves=proves)
    shown = [name for name, key in SIZE_KEYS.items() if (number(composed, f"{MEGATRON}.{key}") or 1) > 1]
    features = FEATURES.items() if variant.trainer in ON_GRPO else ()
    shown += [name for name, (key, value) in features if get(composed, key) == value]
    return replace(variant, proves=proves, proofs=tuple(shown), lora=get(composed, PEFT) is True)


def lacks(variant: Variant) -> str:
    """What the variant's level proves and this recipe does not have; empty where it has it."""
    proofs = set(variant.proofs)
    features = proofs & {*FEATURES, REPLAY, *BACKENDS.values()}
    has = {
        0: ("GRPO", variant.trainer in ON_GRPO),
        1: ("a LoRA adapter", variant.lora),
        2: ("a generator on GPUs of its own", "non-colocated" in proofs),
        3: ("Megatron as the generator", "megatron-generation" in proofs),
        4: ("parallel sizes above 1", variant.trainer in PRINTS_NOTHING or bool(proofs & {*SIZE_KEYS})),
        5: ("a feature that the log shows", bool(features) or variant.trainer == "vlm"),
    }
    what, there = has.get(variant.level, ("", True))
    return "" if there else what


def note(recipe: Recipe) -> RecipeNote:
    """The recipe for a listing, with its shape at its own size."""
    problem = ""
    if not recipe.on_megatron:
        problem = "does not train on Megatron"
    elif recipe.trainer is None:
        problem = f"runs `{recipe.entry}`, which jobspec cannot judge"
    elif recipe.suite and recipe.suite.unknown:
        keys = ", ".join(f"`{text.partition('=')[0].lstrip('+')}`" for text in recipe.suite.unknown)
        problem = f"its script makes or gets {keys} itself: the spec must give it"
    bare = Variant(
        name=recipe.name,
        level=0,
        proves="",
        script=recipe.entry,
        config=recipe.config,
        steps=recipe.steps,
        nodes=0,
        model=recipe.model,
        trainer=recipe.trainer or "sync",
        sizes=True,
    )
    return RecipeNote(
        recipe.name,
        recipe.config,
        recipe.algorithm,
        recipe.model,
        recipe.nodes,
        recipe.gpus,
        recipe.steps,
        recipe.minutes,
        recipe.sizes,
        problem,
        sized(bare, recipe.composed, recipe.nodes, recipe.gpus) if recipe.on_megatron else None,
    )


# -- the script's conditions --------------------------------------------------------------------------


def _read(suite: Suite) -> tuple[tuple[MetricCheck, ...], tuple[str, ...]]:
    """The conditions that jobspec can evaluate, and those that it cannot."""
    readable, unreadable = [], []
    for text in suite.conditions:
        try:
            readable.append(parse_condition(text))
        except ValueError:
            unreadable.append(text)
    return tuple(readable), tuple(unreadable)


def _applies(check: MetricCheck, context: Context, recipe: Recipe, steps: int) -> bool:
    """Whether a condition says something about this run, which may be smaller than the recipe's."""
    if check.reduce in ("at", "has") and check.argument > steps:
        return False
    if check.metric.startswith(MACHINE):
        return not (_smaller(context, recipe) or _changes(context, recipe) or steps < recipe.steps)
    if check.metric in AGREEMENT:
        return True
    if _changes(context, recipe):
        return False
    if steps >= recipe.steps or check.reduce in ("at", "has"):
        return True
    return (check.reduce, check.op) in ENOUGH


def _changes(context: Context, recipe: Recipe) -> tuple[str, ...]:
    """Keys of the spec that make another training of the recipe; values that it leaves open make none."""
    left = {text.partition("=")[0].lstrip("+") for text in (recipe.suite.unknown if recipe.suite else ())}
    model = ("model",) if context.spec.model and left.isdisjoint(MODEL_KEYS) else ()
    own = (key.lstrip("+") for key in context.spec.train.overrides)
    return (*model, *(key for key in own if key not in left and not key.startswith(NEUTRAL)))


def _smaller(context: Context, recipe: Recipe) -> bool:
    """Whether nodes, GPUs or parallel sizes are not the recipe's."""
    own = (context.spec.resources.nodes, context.gpus_per_node)
    return own != (recipe.nodes, recipe.gpus) or gives_sizes(context)


def voided(context: Context, recipe: Recipe) -> str:
    """What this run voids of the script's conditions, in words; empty where all of them apply."""
    steps = context.spec.train.steps or recipe.steps
    checks = _read(recipe.suite or Suite())[0]
    void = tuple(check.text for check in checks if not _applies(check, context, recipe, steps))
    what = f"smaller or other than the recipe ({_difference(context, recipe)})"
    return f"{what}: not requested are {_listed(void)}" if void else ""


def _limits(context: Context, recipe: Recipe, unreadable: tuple[str, ...]) -> Iterator[str]:
    if recipe.suite is None:
        yield "the maintainers have no script for this recipe: nothing says what it must reach"
    if void := voided(context, recipe):
        yield void
    if unreadable:
        yield f"conditions that jobspec cannot evaluate: {_listed(unreadable)}"
    if recipe.trainer in PRINTS_NOTHING:
        yield "NeMo-RL prints no settings of this algorithm: parallel sizes are not shown"
    yield "nothing is saved, whatever the recipe says"


def _difference(context: Context, recipe: Recipe) -> str:
    """How the run differs from what the recipe's script runs."""
    steps = context.spec.train.steps or recipe.steps
    place = (context.spec.resources.nodes, context.gpus_per_node)
    parts = [f"{steps} of {recipe.steps} steps"] if steps != recipe.steps else []
    if place != (recipe.nodes, recipe.gpus):
        parts.append(f"{place[0]} x {place[1]} in place of {recipe.nodes} x {recipe.gpus} GPUs")
    parts += ["`train.parallel`"] if gives_sizes(context) else []
    parts += [f"`{key}`" for key in _changes(context, recipe)]
    return ", ".join(parts)


def _listed(texts: tuple[str, ...]) -> str:
    return ", ".join(f"`{text}`" for text in texts)
