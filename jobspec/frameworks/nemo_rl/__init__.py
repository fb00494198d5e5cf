"""Framework `nemo_rl`: the maintained scripts and recipes of a NeMo-RL checkout, as coverage levels."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING

from jobspec.finding import Finding, fail
from jobspec.frameworks.base import Context, FrameworkPlan, Level, RecipeNote
from jobspec.frameworks.nemo_rl.commands import PROBE
from jobspec.frameworks.nemo_rl.levels import LEVELS, Variant
from jobspec.frameworks.shared.schedule import learning
from jobspec.frameworks.shared.trackers import environment, switched_on
from jobspec.plan import CommandPlan, ExpectPlan, LearningPlan, UpstreamPlan

if TYPE_CHECKING:
    from jobspec.evidence.evidence import Evidence
    from jobspec.megatron.shape import TrainShape
    from jobspec.spec.job import JobSpec
    from jobspec.verdict import Deliverable

__all__ = ["PROBE", "NemoRlFramework"]

OF_TESTS = "models of the tests"
METRIC_KEYS = {"reward": "train/reward", "loss": "train/loss", "grad norm": "train/grad_norm"}
LIMITATIONS = (
    "jobspec looks up the import of Megatron-Bridge in the Megatron worker's interpreter, not in the actor",
)


class NemoRlFramework:
    """One command for each variant, after a look-up of Megatron-Bridge where the spec has one."""

    name = "nemo_rl"
    summary = "the maintained scripts and recipes of a NeMo-RL checkout, on Megatron-Bridge; needs GPUs"
    signs = ("nemo_rl/", "nemo_rl.", "NRL_", "Generation KL Error", "train/gen_kl_error")
    levels = LEVELS
    modes = ("ray", "upstream", "srun")
    guide = (
        "Bridge-side checks",
        "Local Bridge import in NeMo-RL",
        "NeMo-RL Megatron policy run",
        "Requested variants",
        "Metrics/log capture",
    )

    def validate(self, context: Context) -> Iterable[Finding]:
        from jobspec.frameworks.nemo_rl.rules import check

        return check(context)

    def recipe_resources(self, spec: JobSpec, repo_paths: Mapping[str, str]) -> Mapping[str, str | int]:
        """What `train.recipe` asks of the scheduler; nothing for a recipe that `validate` will refuse."""
        from jobspec.frameworks.nemo_rl import checkout, recipes

        root = checkout.find_checkout(repo_paths)
        recipe = recipes.find_recipe(root, spec.train.recipe or "") if root else None
        if recipe is None:
            return {}
        time = {"time": f"{recipe.minutes // 60:02}:{recipe.minutes % 60:02}:00"} if recipe.minutes else {}
        return {"nodes": recipe.nodes, "gpus_per_node": recipe.gpus, **time}

    def override_keys(self, recipe: str, repo_paths: Mapping[str, str]) -> Iterable[str]:
        """The keys of a recipe; none without one, for each variant's script has its own."""
        from jobspec.frameworks.nemo_rl import checkout, recipes
        from jobspec.frameworks.shared.dotted_keys import flat

        root = checkout.find_checkout(repo_paths)
        found = recipes.find_recipe(root, recipe) if root and recipe else None
        return flat(found.composed) if found else ()

    def recipes(self, root: str, family: str = "") -> Iterator[RecipeNote]:
        """The recipes of a checkout, all or those of a model family."""
        from jobspec.frameworks.nemo_rl import recipe_variant, recipes

        for recipe in recipes.all_recipes(root):
            if isinstance(recipe, str):
                yield RecipeNote(recipe, recipes.files(root)[recipe], problem="cannot be read")
            elif recipes.is_of(recipe, family):
                yield recipe_variant.note(recipe)

    def closest_recipes(self, root: str, model: str) -> tuple[RecipeNote, ...]:
        """Recipes of a checkout for this model or its nearest relatives, the closest and smallest first."""
        from jobspec.frameworks.nemo_rl import recipe_variant, recipes

        return tuple(recipe_variant.note(recipe) for recipe in recipes.closest(root, model))

    def plan(self, context: Context) -> FrameworkPlan:
        from jobspec.frameworks.nemo_rl import checkout, checks, rules

        root, variants = checkout.find_checkout(context.repo_paths), rules.variants(context)
        if not variants:
            raise fail("nemo_rl.nothing", "nothing that the spec names can be run", path="coverage.variants")
        mode = context.spec.launch.mode
        return FrameworkPlan(
            _commands(context, root, variants),
            checks=checks.test_commands(context, variants),
            loads_model=True,
            ray_mode="self" if mode == "srun" else "external",
            upstream=UpstreamPlan(root) if mode == "upstream" else None,
            env=environment(context, switched_on(context.spec.train.overrides)),
            expect=_expect(context, variants),
            shape=_shape(context, root, variants),
        )

    def expect(self, level: Level, variants: tuple[str, ...] = (), steps: int = 0) -> ExpectPlan:
        trend = LearningPlan(METRIC_KEYS["reward"]) if level.name == "learning" else None
        return ExpectPlan(
            level=level.name, variants=variants, steps=steps, learning=trend, metric_keys=METRIC_KEYS
        )

    def idle(self, evidence: Evidence) -> frozenset[str]:
        """Of a run of others nothing is known of tests and their models."""
        return frozenset(text for text in evidence.plan.expect.limitations if OF_TESTS in text)

    def judge(self, evidence: Evidence) -> Iterable[Deliverable]:
        from jobspec.frameworks.nemo_rl.judge import judge

        return judge(evidence)


def _commands(context: Context, root: str, variants: tuple[Variant, ...]) -> tuple[CommandPlan, ...]:
    from jobspec.frameworks.nemo_rl import commands
    from jobspec.frameworks.nemo_rl.arguments import overrides
    from jobspec.frameworks.nemo_rl.checkout import find_bridge, transfer_queue_source
    from jobspec.frameworks.nemo_rl.properties import ANNOUNCES

    def setting(variant: Variant | None = None) -> commands.Setting:
        return commands.Setting(
            root,
            # Not `container.python` but the image's Python: scripts find `uv` beside it.
            overrides=overrides(context, variant) if variant else (),
            nodes=context.spec.resources.nodes,
            gpus=context.gpus_per_node,
            model=context.spec.model is not None,
            own_ray=context.spec.launch.mode == "srun",
        )

    # `prove` may also name the Bridge inside a checkout.
    proved = any(repo.prove and repo.prove.module == "megatron.bridge" for repo in context.spec.repos)
    plans = [commands.bridge_command(setting())] if proved or find_bridge(context.repo_paths) else []
    if any(ANNOUNCES in item.proofs for item in variants):
        plans.append(commands.announce_command(setting(), context.spec.resources.nodes))
    source = transfer_queue_source(root)
    for item in variants:
        plans.append(commands.variant_command(setting(item), item, source if item.network_actors else ""))
    return tuple(plans)


def _size_limit(context: Context) -> Iterator[str]:
    if context.model.architecture is not None:
        from jobspec.frameworks.shared.weak_evidence import made_for_a_test
        from jobspec.megatron.weights import model_weights

        yield from made_for_a_test(model_weights(context.model.architecture).total)


def _shape(context: Context, root: str, variants: tuple[Variant, ...]) -> TrainShape | None:
    """The first variant's shape; None where `compose` gives a finding, which `validate` gave before."""
    from jobspec.frameworks.nemo_rl.checkout_rules import compose
    from jobspec.frameworks.nemo_rl.train_shape import train_shape

    composed = compose(context, root, variants[0])
    return None if isinstance(composed, Finding) else train_shape(context, variants[0], composed[1])


def _expect(context: Context, variants: tuple[Variant, ...]) -> ExpectPlan:
    from jobspec.frameworks.nemo_rl.checkout import find_bridge
    from jobspec.frameworks.nemo_rl.properties import kept

    spec = context.spec
    changed = kept(variants)
    own = {"variants": changed} if changed else {}
    return ExpectPlan(
        level=context.level.name,
        variants=tuple(item.name for item in variants),
        steps=spec.train.steps or variants[0].steps,
        metrics_require=spec.metrics.require,
        learning=learning(spec.metrics, context.level.name, METRIC_KEYS["reward"]),
        files=spec.artifacts.require,
        checkpoint=any(item.saves for item in variants),
        resume=any(item.resumes for item in variants),
        metric_keys=METRIC_KEYS,
        limitations=(
            *LIMITATIONS,
            *_size_limit(context),
            *(item.limitation for item in variants if item.limitation),
        ),
        options={"bridge": find_bridge(context.repo_paths), "steps": spec.train.steps or 0, **own},
    )
