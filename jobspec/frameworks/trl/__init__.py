"""Framework `trl`: GRPO by TRL's GRPOTrainer, data-parallel in Ray Train, on CPUs or GPUs.

The driver is `jobspec.runtime.drivers.trl.driver`; this package plans its commands and judges its files.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from jobspec.finding import Finding
from jobspec.frameworks.base import Context, FrameworkPlan, Level
from jobspec.frameworks.shared.repo_tests import check_commands
from jobspec.frameworks.shared.schedule import ONE_SEED, Schedule, expectation, level_expectation, schedule
from jobspec.frameworks.shared.trackers import environment
from jobspec.frameworks.trl import rules
from jobspec.plan import CommandPlan, ExpectPlan, data_variable
from jobspec.runtime.drivers.trl.loop import OWNED_OPTIONS
from jobspec.runtime.drivers.trl.state import TrainConfig

if TYPE_CHECKING:
    from jobspec.evidence.evidence import Evidence
    from jobspec.verdict import Deliverable

ENGINE = "no rollout engine is proved: without `use_vllm` transformers itself generates"
REWARD_MODEL = "no reward model and no environment is proved"
NOT_PROVED = ("no tensor, pipeline, expert or context parallelism is proved", ENGINE, REWARD_MODEL)
LEVELS = (
    Level(
        "smoke",
        0,
        "model, data and reward, where one is logged, fit together: the planned train steps ran with finite"
        " metrics",
        (*NOT_PROVED, "nothing is proved about learning"),
    ),
    Level(
        "checkpoint",
        1,
        "a checkpoint is complete, and a new process continued from it with optimizer and random state",
        (*NOT_PROVED, "nothing is proved about learning", "a resume with another number of workers"),
    ),
    Level(
        "learning",
        2,
        "the asked metric moved in the asked direction beyond its noise",
        (*NOT_PROVED, ONE_SEED),
    ),
)
DEFAULT_STEPS = {"smoke": 2, "checkpoint": 4, "learning": 30}
DEFAULT_SEED = 42
METRIC_KEYS = {
    "reward": "reward",
    "loss": "loss",
    "grad norm": "grad_norm",
    "step time": "perf/step_s",
    "tokens/s": "perf/tokens_per_s",
}


class TrlFramework:
    """One command for levels `smoke` and `learning`; two, the second a resume, for `checkpoint`."""

    name = "trl"
    summary = "GRPO by Hugging Face TRL in Ray Train: data-parallel, CPU or GPU"
    signs = ("trl/trainer/", "GRPOTrainer", "trl.trainer", "completions/mean_length", "completion_length")
    levels = LEVELS
    modules = ("torch", "transformers", "trl")

    def validate(self, context: Context) -> Iterable[Finding]:
        overrides = rules.split_overrides(context.spec.train.overrides)
        yield from rules.check_inputs(context)
        yield from rules.check_steps(context, schedule(context, DEFAULT_STEPS).steps)
        yield from rules.check_workers(context)
        yield from rules.check_options(context, overrides)
        yield from rules.check_batch(overrides.options, rules.workers(context))
        reward = rules.find_reward(context)
        if isinstance(reward, Finding):
            yield reward

    def override_keys(self, recipe: str, repo_paths: Mapping[str, str]) -> Iterable[str]:
        """The fields of the installed TRL's configuration; none where TRL is not installed."""
        return sorted(rules.grpo_fields() - set(OWNED_OPTIONS))

    def plan(self, context: Context) -> FrameworkPlan:
        run_schedule = schedule(context, DEFAULT_STEPS)
        return FrameworkPlan(
            commands=tuple(
                _command(context, run_schedule, label, until) for label, until in run_schedule.commands
            ),
            checks=check_commands(context, context.container.python),
            ray_mode="external",
            env={"RAY_TRAIN_V2_ENABLED": "1", **environment(context, rules.trackers(context))},
            expect=_expect(context, run_schedule),
            collect=("train_state-*.json",),  # each rank's host, device, steps and proof of a resume
        )

    def expect(self, level: Level, variants: tuple[str, ...] = (), steps: int = 0) -> ExpectPlan:
        return level_expectation(level, variants, steps, METRIC_KEYS)

    def idle(self, evidence: Evidence) -> frozenset[str]:
        """Of a run of others its engine may be any; SFT and DPO have neither that nor a reward."""
        rated = evidence.metrics.series(METRIC_KEYS["reward"])
        return frozenset({ENGINE} if rated else {ENGINE, REWARD_MODEL})

    def judge(self, evidence: Evidence) -> Iterable[Deliverable]:
        from jobspec.frameworks.trl.judge import judge  # not needed, and not loaded, before there is a run

        return judge(evidence)


# -- plan --------------------------------------------------------------------------------------------


def options(context: Context) -> dict[str, Any]:
    """GRPOConfig fields: our defaults with the spec's overrides on top."""
    defaults: dict[str, Any] = {
        "per_device_train_batch_size": rules.BATCH_DEFAULTS["per_device_train_batch_size"],
        "num_generations": rules.BATCH_DEFAULTS["num_generations"],
        "bf16": context.gpus_per_node > 0,
        # It trades compute for GPU memory, which a CPU run has no use for.
        "gradient_checkpointing": context.gpus_per_node > 0,
        "ddp_find_unused_parameters": False,  # the search costs a pass over the graph at every step
    }
    asked = rules.split_overrides(context.spec.train.overrides).options
    named = {rules.REPORT_TO: list(rules.trackers(context))} if rules.REPORT_TO in asked else {}
    return {**defaults, **asked, **named}


def _command(context: Context, run_schedule: Schedule, label: str, until: int) -> CommandPlan:
    spec = context.spec
    reward = rules.find_reward(context)
    config = TrainConfig(
        steps=run_schedule.steps,
        workers=rules.workers(context),
        until=until,
        reward={} if isinstance(reward, Finding) else reward,
        seed=DEFAULT_SEED if spec.train.seed is None else spec.train.seed,
        use_gpu=context.gpus_per_node > 0,
        options=options(context),
        peft=rules.split_overrides(spec.train.overrides).peft,
        save_every=run_schedule.save_every,
        keep=spec.checkpoint.keep or 0,
        resume="must" if label == "resume" else spec.checkpoint.resume,
        data=_data_variable(context),
        label=label,
    )
    argv = (
        context.container.python,
        "-m",
        "jobspec.runtime.drivers.trl.driver",
        "--config",
        config.to_json(),
    )
    return CommandPlan(name=label, argv=argv)


def _data_variable(context: Context) -> str:
    """The variable that the runtime puts the prompts' path into."""
    names = [item.name for item in context.spec.data]
    name = "prompts" if "prompts" in names else names[0]
    return data_variable(name)


def _expect(context: Context, run_schedule: Schedule) -> ExpectPlan:
    return replace(
        expectation(context, run_schedule, METRIC_KEYS),
        limitations=tuple(_limitations(context)),
        options={"workers": rules.workers(context), "resume_from": run_schedule.half},
    )


def _limitations(context: Context) -> Iterator[str]:
    if rules.workers(context) == 1:
        yield "one worker took part: no data parallelism is proved"
    if rules.split_overrides(context.spec.train.overrides).peft:
        yield "a LoRA adapter was trained: full-parameter training is not proved"
