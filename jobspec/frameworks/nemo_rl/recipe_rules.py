"""Rules for `train.recipe`: the checkout has it, jobspec can judge it, and its level proves something."""

from __future__ import annotations

from collections.abc import Iterator

from msgspec.structs import replace

from jobspec.finding import Finding, error, warning
from jobspec.frameworks.base import Context
from jobspec.frameworks.nemo_rl import recipes
from jobspec.frameworks.nemo_rl.levels import LEVELS
from jobspec.frameworks.nemo_rl.printed_config import weak_table
from jobspec.frameworks.nemo_rl.recipe_variant import lacks, voided
from jobspec.frameworks.nemo_rl.recipes import TRAINERS, UNREADABLE, Recipe
from jobspec.frameworks.nemo_rl.variant import MODEL_KEYS, Variant
from jobspec.frameworks.shared.nemo_recipe import MEGATRON, Config, get, value_text
from jobspec.frameworks.shared.weak_evidence import limits
from jobspec.words import did_you_mean, one_of

PATH = "train.recipe"


def find(context: Context, root: str) -> Recipe | Finding:
    """The spec's recipe, or the error that says why there is none."""
    name = context.spec.train.recipe or ""
    known = recipes.files(root)
    if name not in known:
        what = f"the checkout has no recipe `{name}`"
        why = f"jobspec looked below `{recipes.RECIPES}` in `{root}`"
        near = did_you_mean(name, known) or "`jobspec framework recipes nemo_rl --repo PATH` lists them"
        return error("nemo_rl.recipe", what, why, near, path=PATH)
    try:
        return recipes.read_recipe(root, name, known[name])
    except UNREADABLE as problem:
        what = f"recipe `{name}` cannot be read in the checkout"
        return error("nemo_rl.recipe", what, str(problem), "use a revision that has it", path=PATH)


def check(context: Context, recipe: Recipe) -> Iterator[Finding]:
    """Findings about a recipe that was found."""
    if context.spec.coverage.variants:
        what = "`train.recipe` and `coverage.variants` both say what runs"
        yield error("nemo_rl.recipe", what, fix="remove one of them", path="coverage.variants")
    if recipe.trainer is None:
        what = f"recipe `{recipe.name}` runs `{recipe.entry}`, whose runs jobspec cannot judge"
        fix = f"use a recipe of {one_of([name.rpartition('/')[2] for name in TRAINERS])}"
        yield error("nemo_rl.recipe", what, fix=fix, path=PATH)
    for argument in _unknown(context, recipe):
        key, _, value = argument.partition("=")
        what = (
            f"the script of recipe `{recipe.name}` sets `{key}` to `{value}`, which it makes or gets itself"
        )
        fix = f"set `{key}` in `train.overrides`" + (" or name the `model`" if key in MODEL_KEYS else "")
        yield error("nemo_rl.recipe-value", what, "jobspec runs the recipe, not its script", fix, path=PATH)
    if void := voided(context, recipe):
        what = f"the run is {void}"
        fix = "leave out nodes, GPUs, steps and overrides to run the recipe as it is"
        yield warning("nemo_rl.recipe-smaller", what, "they belong to the recipe's own size", fix, path=PATH)


def check_level(variant: Variant, composed: Config) -> Iterator[Finding]:
    """Findings about what the recipe, with the spec's arguments, proves at its level."""
    if get(composed, f"{MEGATRON}.enabled") is not True:
        return  # an error of its own
    if missing := lacks(variant):
        what = f"recipe `{variant.name}` does not have what level {variant.level} proves: {missing}"
        others = [str(item.number) for item in LEVELS if not lacks(replace(variant, level=item.number))]
        fix = f"use level {one_of(others)}, or another recipe"
        yield error("nemo_rl.recipe-level", what, fix=fix, path="coverage.level")

    def values(key: str) -> tuple[str, ...]:
        value = get(composed, key)
        return () if value is None else (value_text(value),)

    for text in limits([item for item in weak_table((variant,)) if item.refused], values):
        yield warning("nemo_rl.weak-evidence", f"in recipe `{variant.name}` {text}", path=PATH)


def _unknown(context: Context, recipe: Recipe) -> Iterator[str]:
    """Arguments of the script that neither its text nor the spec gives a value."""
    own = {key.lstrip("+") for key in context.spec.train.overrides}
    own |= set(MODEL_KEYS) if context.spec.model else set()
    arguments = recipe.suite.unknown if recipe.suite else ()
    yield from (text for text in arguments if text.partition("=")[0].lstrip("+") not in own)
