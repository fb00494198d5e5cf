"""Framework `skyrl`: GRPO by SkyRL with vLLM, from one GPU with FSDP to the 550B recipe on eight nodes."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from jobspec.finding import Finding, JobspecError, fail
from jobspec.frameworks.base import Context, FrameworkPlan, Level
from jobspec.frameworks.shared.repo_tests import check_commands
from jobspec.frameworks.shared.schedule import ONE_SEED, expectation, level_expectation
from jobspec.frameworks.skyrl import dummy_trainers, environment_probe, locked_versions, settings
from jobspec.frameworks.skyrl.accepted_settings import read_options
from jobspec.frameworks.skyrl.typed_settings import check_values
from jobspec.metrics.table import Table
from jobspec.plan import AbortPlan, CommandPlan, ExpectPlan, data_variable

if TYPE_CHECKING:
    from jobspec.evidence.evidence import Evidence
    from jobspec.verdict import Deliverable

NO_LEARNING = "nothing is proved about learning"
NEEDS = "a SkyRL checkout, its image or `uv` environment with Python 3.12, parquet or JSON-lines data, GPUs"
LEVELS = (
    Level(
        "smoke",
        0,
        "the planned steps ran: rollouts, weight updates, weights carried back to the engines",
        (NO_LEARNING, "nothing is proved about checkpoints"),
        needs=NEEDS,
    ),
    Level(
        "checkpoint",
        1,
        "SkyRL saved a complete checkpoint, and a new process loaded it and trained on",
        (NO_LEARNING, "a resume with other sizes of parallelism"),
        needs=NEEDS,
    ),
    Level(
        "learning",
        2,
        "the asked metric moved in the asked direction beyond its noise",
        (ONE_SEED,),
        needs=NEEDS,
    ),
)
METRIC_KEYS = {
    "reward": "reward/avg_raw_reward",
    "eval": "eval/all/avg_score",
    "loss": "policy/final_loss",
    "grad norm": "policy/grad_norm",
    "tokens/s": "trainer/tokens_per_second_per_gpu",
    "step time": "timing/step",
}
MARKER = "latest_ckpt_global_step.txt"
# Ray starts each worker by the same `uv run`, with the working folder shipped along.
UV_HOOK = "ray._private.runtime_env.uv_runtime_env_hook.hook"


class SkyRlFramework:
    """The entrypoint once; at level `checkpoint` twice, the second a resume."""

    name = "skyrl"
    summary = "GRPO by SkyRL with vLLM, on Megatron (mixtures of experts up to 550B parameters) or on FSDP"
    signs = ("skyrl_train", "skyrl_entrypoint", "skyrl/train", "reward/avg_raw_reward", "policy/final_loss")
    levels = LEVELS
    modes = ("ray",)
    has_groups = "first"
    for_services = ", such as its engines (`examples/skyrl_rollout_nodes.yaml`)"

    def validate(self, context: Context) -> Iterable[Finding]:
        from jobspec.frameworks.skyrl.rules import check

        return check(context)

    def override_keys(self, recipe: str, repo_paths: Mapping[str, str]) -> Iterable[str]:
        """The keys of the checkout's configuration classes."""
        found = (read_options(Path(path)) for path in repo_paths.values())
        return next((sorted(options.keys) for options in found if options is not None), ())

    def plan(self, context: Context) -> FrameworkPlan:
        """Raises: JobspecError without a checkout or with sizes that are no numbers, as `validate` says."""
        if wrong := list(check_values(context)):
            raise JobspecError(*wrong)
        checkout = dummy_trainers.find_checkout(context)
        if checkout is None:
            raise fail("skyrl.checkout", "no repository of the spec is a SkyRL checkout", path="repos")
        schedule = settings.schedule(context)
        return FrameworkPlan(
            loads_model=True,
            commands=tuple(
                _command(context, str(checkout), label, until) for label, until in schedule.commands
            ),
            checks=check_commands(context, context.container.python),
            ray_mode="external",
            env=settings.environment(context),
            expect=_expect(context),
            collect=("skyrl/dumped_evals/**", f"{MARKER}"),
            shape=settings.shape(context) if settings.strategy(context) == "megatron" else None,
            abort_when=() if dummy_trainers.is_dummy(context) else canary(),
        )

    def expect(self, level: Level, variants: tuple[str, ...] = (), steps: int = 0) -> ExpectPlan:
        return level_expectation(level, variants, steps, METRIC_KEYS)

    def judge(self, evidence: Evidence) -> Iterable[Deliverable]:
        if evidence.plan.expect.options.get("dummy"):
            return dummy_trainers.judge(evidence)
        from jobspec.frameworks.skyrl.judge import judge  # not needed, and not loaded, before there is a run

        return judge(evidence)

    def log_metrics(self, evidence: Evidence) -> Table:
        """Metrics that only logs hold, for the table of a sweep."""
        return dummy_trainers.read_logs(evidence) if evidence.plan.expect.options.get("dummy") else Table()


def canary() -> tuple[AbortPlan, ...]:
    """Conditions that end the run at once: no later step can mend broken weights in the engines."""
    from jobspec.frameworks.skyrl.judge import BROKEN, DIFFERENCE, LENGTH, REWARD, ZERO_STEPS
    from jobspec.metrics.requirements import parse_condition

    fix = "see the weight-transfer findings of `jobspec validate`, and use a checkout with pull request 1816"
    zero = f"count({REWARD}) >= {ZERO_STEPS} and max({REWARD}) == 0 and max({LENGTH}) > 0"
    return (
        parse_condition(
            f"max({DIFFERENCE}) > {BROKEN:g}",
            "the engines answer with other weights than the trainer has",
            fix,
        ),
        parse_condition(
            zero,
            "there are answers and none earns a reward: as where weights, chat template or reward are wrong",
            fix,
        ),
    )


def _command(context: Context, checkout: str, label: str, until: int) -> CommandPlan:
    """The entrypoint with its overrides; folders of the run are the shell's variables, known only there."""
    launcher = context.spec.train.command or _uv_command(context)
    resumes = label == "resume" or _continues(context)
    words = [
        *(shlex.quote(word) for word in (*launcher, *settings.arguments(context, until, resumes))),
        '"trainer.policy.model.path=$JOBSPEC_MODEL_PATH"',
        '"trainer.ckpt_path=$JOBSPEC_CHECKPOINT_DIR"',
        '"trainer.export_path=$JOBSPEC_ATTEMPT_DIR/skyrl"',
        '"trainer.log_path=$JOBSPEC_ATTEMPT_DIR/skyrl"',
        *_data(context),
    ]
    if dummy_trainers.RESULTS_FILE in (dummy_trainers.extra_keys(context) or ()):
        words.append(f'"{dummy_trainers.RESULTS_FILE}=$JOBSPEC_ATTEMPT_DIR/skyrl/sweep.jsonl"')
    lines = [
        'mkdir -p "$JOBSPEC_ATTEMPT_DIR/skyrl" "$TENSORBOARD_DIR"',
        f"export RAY_RUNTIME_ENV_HOOK={UV_HOOK}" if launcher[0] == "uv" else "",
        *(_probes(context, launcher, Path(checkout)) if label == "train" else ()),
        " \\\n  ".join(words),
    ]
    if settings.schedule(context).save_every:
        marker = f'"$JOBSPEC_CHECKPOINT_DIR/{MARKER}"'
        lines.append(f'echo "jobspec: the last complete checkpoint is of step $(cat {marker})"')
    text = "\n".join(line for line in lines if line) + "\n"
    return CommandPlan(label, (text,), shell=True, cwd=checkout)  # noqa: S604 - plain data, starts nothing


def _probes(context: Context, launcher: tuple[str, ...], checkout: Path) -> tuple[str, str]:
    """Versions beside the lock's, which decide nothing, and what ends a run before a model is built."""
    versions = locked_versions.probe(launcher, checkout, settings.strategy(context))
    return versions, environment_probe.probe(context, launcher, checkout)


def _uv_command(context: Context) -> tuple[str, ...]:
    """SkyRL's own way to start: `uv` builds the environment that the checkout locks for this backend."""
    return ("uv", "run", "--isolated", "--extra", settings.strategy(context), "-m", dummy_trainers.MAIN)


def _continues(context: Context) -> bool:
    """Whether a requeued attempt continues from a checkpoint; the first half of a resume test starts anew."""
    saves = settings.schedule(context).save_every > 0 and context.level.name != "checkpoint"
    return saves and context.spec.checkpoint.resume != "never"


def _data(context: Context) -> Iterator[str]:
    variables = {item.name: data_variable(item.name) for item in context.spec.data}
    if {"train", "val"} == set(variables):
        files = {"train": f"${variables['train']}", "val": f"${variables['val']}"}
    else:
        folder = f"${next(iter(variables.values()))}"
        files = {"train": f"{folder}/train.parquet", "val": f"{folder}/validation.parquet"}
    for part, path in files.items():
        yield f"\"data.{part}_data=['{path}']\""


def _expect(context: Context) -> ExpectPlan:
    schedule = settings.schedule(context)
    return replace(
        expectation(context, schedule, METRIC_KEYS),
        limitations=tuple(_limitations(context)),
        options={
            "resume_from": schedule.half,
            **({"dummy": True} if dummy_trainers.is_dummy(context) else {}),
        },
    )


def _limitations(context: Context) -> Iterator[str]:
    if dummy_trainers.is_dummy(context):
        yield "train steps on fabricated answers: nothing is proved about rollouts and transfer of weights"
    if settings.strategy(context) == "fsdp":
        yield "the trainer is FSDP: nothing is proved about Megatron"
    if settings.setting(context, "trainer.placement.colocate_all"):
        yield "the engines share the trainer's GPUs: transfer to separate engines is not proved"
    if int(settings.setting(context, "trainer.policy.model.lora.rank")):
        yield "a LoRA adapter was trained: full-parameter training is not proved"
