"""Framework `rlix`: several pipelines of NeMo-RL on the same GPUs, in one allocation and one Ray cluster."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from jobspec.finding import Finding, fail
from jobspec.frameworks.base import Context, FrameworkPlan, Level, VariantNote
from jobspec.frameworks.shared.repo_tests import check_commands
from jobspec.frameworks.shared.schedule import ONE_SEED, learning
from jobspec.frameworks.shared.trackers import environment, switched_on
from jobspec.plan import AbortPlan, ExpectPlan, MadePlan, PartPlan

if TYPE_CHECKING:
    from jobspec.evidence.evidence import Evidence
    from jobspec.frameworks.rlix.settings import PipelineSettings
    from jobspec.verdict import Deliverable

NO_ROLL = "jobspec runs no pipelines of ROLL, alone or beside those of NeMo-RL"
NOT_PROVED = (
    "nothing is proved about checkpoints: no level asks for one",
    NO_ROLL,
    "RLix itself says that engines have the trainer's weights: jobspec does not compare them",
)
GATES = "gates"
NO_LEARNING = "nothing is proved about learning"
NEEDS = (
    "checkouts of RLix (branch `nemo`) and of the NeMo-RL fork that it was tested with, NeMo-RL's image, one "
    "node with two GPUs or more"
)
TRACED = VariantNote(
    "trace", "the same, with RLix's time line of every GPU", "`tg4perfetto` in the image", "a Perfetto trace"
)
LEVELS = (
    Level(
        "smoke",
        0,
        "each pipeline ran all its steps of asynchronous GRPO: its engines slept while their GPUs trained "
        "and woke with newer weights, and each step published its weights before the next began",
        (NO_LEARNING, "nothing is proved about pipelines side by side", *NOT_PROVED),
        ("trace",),
        NEEDS,
        (TRACED,),
    ),
    Level(
        "multi",
        1,
        "the same as `smoke`, for two or more pipelines at the same time on the same GPUs",
        (NO_LEARNING, *NOT_PROVED),
        ("trace",),
        NEEDS,
        (TRACED,),
    ),
    Level(
        "learning",
        2,
        "the asked metric of each pipeline moved in the asked direction beyond its noise",
        (ONE_SEED, *NOT_PROVED),
        ("trace",),
        NEEDS,
        (TRACED,),
    ),
    Level(
        GATES,
        3,
        "RLix's own tests of gate 2.5: NCCL groups that are destroyed and built again, and weights that "
        "reach a part of the ranks bit by bit",
        (
            "nothing is proved about pipelines: the tests run RLix's parts on their own",
            "nothing is proved about gate 2, the sleep of a tensor-parallel group: no test is published",
        ),
        needs="a checkout of RLix (branch `nemo`), PyTorch with Megatron-Core, one node with four GPUs",
    ),
)


class RlixFramework:
    """RLix's driver once, on the head, with one wrapper file for each pipeline."""

    name = "rlix"
    summary = "several NeMo-RL pipelines that share the GPUs of one node by turns, under RLix's scheduler"
    signs = ("rlix/", "RLIX_", "rlix:orchestrator")
    drives = ("nemo_rl",)
    levels = LEVELS
    modes = ("ray",)
    has_pipelines = True

    def override_keys(self, recipe: str, repo_paths: Mapping[str, str]) -> Iterable[str]:
        """Those of a pipeline's configuration and of RLix's wrapper, which no key of the spec sets."""
        from jobspec.frameworks.rlix import checkout, settings
        from jobspec.frameworks.shared import nemo_recipe
        from jobspec.frameworks.shared.dotted_keys import flat

        root = repo_paths.get(checkout.nemo_repo(repo_paths), "")
        config = nemo_recipe.load(Path(root, recipe)) if root and recipe else {}
        return [key for key in (*flat(config), *settings.WRAPPER) if key not in settings.OWNED]

    def validate(self, context: Context) -> Iterable[Finding]:
        if context.level.name == GATES:
            from jobspec.frameworks.rlix import gates

            return gates.check(context)
        from jobspec.frameworks.rlix.rules import check

        return check(context)

    def plan(self, context: Context) -> FrameworkPlan:
        """Raises: JobspecError without checkouts or pipelines, for which `validate` gives an error too."""
        from jobspec.frameworks.rlix import checkout, commands, gates, memory
        from jobspec.frameworks.rlix.rules import read_recipes
        from jobspec.frameworks.rlix.settings import pipeline_settings

        if context.level.name == GATES and checkout.roots(context)[0]:
            return gates.plan(context)
        if not all(checkout.roots(context)) or not context.spec.pipelines:
            raise fail(
                "rlix.checkout",
                "a checkout of RLix, a checkout of NeMo-RL or a pipeline is missing",
                path="repos",
            )
        pipelines = pipeline_settings(context, read_recipes(context)[0])
        return FrameworkPlan(
            commands=commands.commands(context, pipelines),
            checks=check_commands(context, context.container.python),
            ray_mode="external",
            env={
                **commands.environment(context, memory.chosen_bucket(context, pipelines)),
                **environment(context, [name for item in pipelines for name in switched_on(item.overrides)]),
            },
            expect=_expect(context, pipelines),
            collect=tuple(_collected(context)),
            abort_when=tuple(_conditions(pipelines)),
            made=(MadePlan(commands.ROOT, commands.NOTE),),
        )

    def expect(self, level: Level, variants: tuple[str, ...] = (), steps: int = 0) -> ExpectPlan:
        return ExpectPlan(level=level.name, variants=variants, steps=steps)

    def idle(self, evidence: Evidence) -> frozenset[str]:
        """What jobspec cannot run is no limit of a run of others."""
        return frozenset({NO_ROLL})

    def judge(self, evidence: Evidence) -> Iterable[Deliverable]:
        if evidence.plan.expect.level == GATES:
            from jobspec.frameworks.rlix import gates

            return gates.judge(evidence)
        from jobspec.frameworks.rlix.judge import judge  # not needed, and not loaded, before there is a run

        return judge(evidence)


def _collected(context: Context) -> Iterator[str]:
    yield "rlix/configs/*.yaml"
    if "trace" in context.spec.coverage.variants:
        yield "rlix/trace/*"


def _conditions(pipelines: Iterable[PipelineSettings]) -> Iterator[AbortPlan]:
    """Conditions of the pipelines, each on its own metrics; the first that holds ends the whole run."""
    from jobspec.metrics.requirements import parse_condition, prefixed

    for pipeline in pipelines:
        yield from (
            prefixed(parse_condition(text), f"{pipeline.name}/") for text in pipeline.spec.metrics.abort_when
        )


def _expect(context: Context, pipelines: tuple[PipelineSettings, ...]) -> ExpectPlan:
    from jobspec.frameworks.rlix.judge import METRIC_KEYS, REWARD, VERIFY
    from jobspec.frameworks.rlix.settings import VERIFY as COMPARES

    spec = context.spec
    names = ",".join(pipeline.name for pipeline in pipelines if pipeline.wrapper[COMPARES])
    return ExpectPlan(
        level=context.level.name,
        variants=spec.coverage.variants,
        steps=max(pipeline.steps for pipeline in pipelines),
        metrics_require=spec.metrics.require,
        files=spec.artifacts.require,
        checkpoint=spec.checkpoint.every is not None,
        metric_keys={
            f"{pipeline.name} {name}": f"{pipeline.name}/{key}"
            for pipeline in pipelines
            for name, key in METRIC_KEYS.items()
        },
        limitations=tuple(_limitations(pipelines)),
        options={VERIFY: names} if names else {},
        parts=tuple(
            PartPlan(
                pipeline.name,
                pipeline.steps,
                pipeline.spec.metrics.require,
                learning(pipeline.spec.metrics, context.level.name, REWARD),
            )
            for pipeline in pipelines
        ),
    )


def _limitations(pipelines: tuple[PipelineSettings, ...]) -> Iterator[str]:
    from jobspec.frameworks.rlix.topology import alone

    for pipeline in alone(pipelines) if len(pipelines) > 1 else ():
        yield f"pipeline `{pipeline.name}` had GPUs of its own: nothing is proved about sharing them"
    if all(pipeline.engine_tp == 1 for pipeline in pipelines):
        yield "every engine had one GPU: tensor-parallel engines that sleep and wake are not proved"
    if all(len(pipeline.train) == 1 for pipeline in pipelines):
        yield "every pipeline trained on one GPU: Megatron's process groups were never taken down and rebuilt"
