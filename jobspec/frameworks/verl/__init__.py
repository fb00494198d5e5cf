"""Framework `verl`: PPO by verl's Megatron backend through a checkout of Megatron-Bridge.

What runs is the checkout's own maintained script; here is what it is told, and what its files prove.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Iterator
from pathlib import PurePosixPath
from typing import TYPE_CHECKING

from jobspec.finding import Finding, fail
from jobspec.frameworks.base import Context, FrameworkPlan, Level
from jobspec.frameworks.verl import settings
from jobspec.frameworks.verl.checkout import PREPARE_GSM8K, WRAPPER, Wrapper, read_wrapper
from jobspec.plan import CommandPlan, ExpectPlan, LearningPlan

if TYPE_CHECKING:
    from jobspec.evidence import Evidence
    from jobspec.verdict import Deliverable

NOT_PROVED = (
    "the model's own correctness: parity with Hugging Face belongs to the Bridge's own tests",
    "convergence: no threshold of a benchmark was agreed",
)
NO_LEARNING = "nothing is proved about learning"
LEVELS = (
    Level(
        "smoke",
        0,
        "verl built the model by the local Bridge and finished the planned steps under its Megatron trainer",
        (*NOT_PROVED, NO_LEARNING),
    ),
    Level(
        "checkpoint",
        1,
        "verl saved the Bridge-built model, and a new process loaded model and optimizer and trained on",
        (*NOT_PROVED, NO_LEARNING, "the resume had the same number of GPUs and the same sizes"),
    ),
    Level(
        "parallel",
        2,
        "the planned steps ran with the asked sizes of model parallelism in verl's own configuration",
        (*NOT_PROVED, NO_LEARNING),
    ),
    Level(
        "fsdp",
        3,
        "the planned steps ran with Megatron-FSDP in place of DDP",
        (*NOT_PROVED, NO_LEARNING, "Megatron-FSDP with one GPU shards nothing"),
    ),
    Level(
        "architecture",
        4,
        "the planned steps ran with the asked feature in verl's own configuration",
        (*NOT_PROVED, NO_LEARNING, "the feature's results were not compared with another implementation"),
    ),
    Level(
        "learning",
        5,
        "the asked metric moved in the asked direction beyond its noise, with live gradients and adapters",
        (*NOT_PROVED, "one seed: the size of the effect may differ with another"),
    ),
)
METRIC_KEYS = {
    "reward": "critic/rewards/mean",
    "loss": "actor/pg_loss",
    "grad norm": "actor/grad_norm",
    "kl": "actor/kl_loss",
    "step time": "perf/time_per_step",
    "tokens/s": "perf/throughput",
}


class VerlFramework:
    """The script once; at level `checkpoint` twice, the second a resume."""

    name = "verl"
    summary = "PPO and GRPO by verl's Megatron backend, through a checkout of Megatron-Bridge; needs GPUs"
    levels = LEVELS
    modes = ("ray",)

    def validate(self, context: Context) -> Iterable[Finding]:
        from jobspec.frameworks.verl.rules import check

        return check(context)

    def plan(self, context: Context) -> FrameworkPlan:
        """Raises: JobspecError when the checkout has no script, which `validate` has said already."""
        wrapper = read_wrapper(context.repo_paths)
        if wrapper is None:
            raise fail("verl.checkout", f"no repository `verl` with a readable `{WRAPPER}`", path="repos")
        work = settings.schedule(context)
        parts = [("train", work.half), ("resume", work.steps)] if work.half else [("train", work.steps)]
        commands = tuple(_train(context, wrapper, label, until) for label, until in parts)
        if _prepares(context):
            commands = (_prepare(context), *commands)
        return FrameworkPlan(
            commands=commands,
            ray_mode="external",
            # Both are read by Ray's workers, which inherit the environment that Ray was started with.
            env={"RAY_DEDUP_LOGS": "0", "CUDA_DEVICE_MAX_CONNECTIONS": "1"},
            expect=_expect(context, wrapper),
        )

    def expect(self, level: Level, variants: tuple[str, ...] = (), steps: int = 0) -> ExpectPlan:
        learning = LearningPlan(METRIC_KEYS["reward"]) if level.name == "learning" else None
        return ExpectPlan(
            level=level.name, variants=variants, steps=steps, learning=learning, metric_keys=METRIC_KEYS
        )

    def judge(self, evidence: Evidence) -> Iterable[Deliverable]:
        from jobspec.frameworks.verl.judge import judge  # not needed, and not loaded, before there is a run

        return judge(evidence)


# -- commands ----------------------------------------------------------------------------------------


def _train(context: Context, wrapper: Wrapper, label: str, until: int) -> CommandPlan:
    """The script with its variables; folders of the run are the shell's variables, known only there."""
    spec = context.spec
    # A requeued attempt goes on from what was saved; the first half of a resume test always starts anew.
    saves = spec.checkpoint.every is not None and spec.checkpoint.resume != "never"
    resumes = label == "resume" or (saves and context.level.name != "checkpoint")
    fixed = settings.variables(context, wrapper)
    fixed |= {"TOTAL_TRAIN_STEPS": str(until), "RESUME_MODE": "auto" if resumes else "disable"}
    if spec.model is not None:
        fixed["MODEL_ID"] = spec.model.id or PurePosixPath(spec.model.path or "model").name
    if (reward := settings.reward_model(context)) is not None:
        fixed["RM_MODEL_PATH"] = reward
    lines = ["unset ROCR_VISIBLE_DEVICES HIP_VISIBLE_DEVICES  # verl's workers refuse them beside CUDA's"]
    lines += [f"export {name}={shlex.quote(value)}" for name, value in sorted(fixed.items())]
    lines += [f'export {name}="{value}"' for name, value in _folders(context)]
    worker = "++ray_kwargs.ray_init.runtime_env.env_vars"
    log = f"$JOBSPEC_METRICS_DIR/{label}.jsonl"  # verl truncates the file: a resume has another one
    words = [
        *(shlex.quote(word) for word in settings.arguments(context, wrapper)),
        '"trainer.default_local_dir=$JOBSPEC_CHECKPOINT_DIR"',
        f'"{worker}.VERL_FILE_LOGGER_PATH={log}"',
        f'"{worker}.PYTHONPATH=$PYTHONPATH"',
    ]
    lines.append(" \\\n  ".join([f"bash {WRAPPER}", *words]))
    return CommandPlan(label, ("\n".join(lines) + "\n",), shell=True, cwd=context.repo_paths["verl"])  # noqa: S604


def _folders(context: Context) -> Iterator[tuple[str, str]]:
    yield "MODEL_PATH", "$JOBSPEC_MODEL_PATH"
    # The script keeps a model that is already there: never one of another run.
    yield "DUMMY_MODEL_PATH", "$JOBSPEC_ATTEMPT_DIR/dummy_model"
    names = {item.name for item in context.spec.data}
    if names == {"train", "val"}:
        yield "TRAIN_FILES", "$JOBSPEC_DATA_TRAIN"
        yield "VAL_FILES", "$JOBSPEC_DATA_VAL"
    else:
        folder = "$JOBSPEC_ATTEMPT_DIR/gsm8k" if _prepares(context) else f"${_data_variable(context)}"
        yield "TRAIN_FILES", f"{folder}/train.parquet"
        yield "VAL_FILES", f"{folder}/test.parquet"


def _prepares(context: Context) -> bool:
    return any(item.prepare == "gsm8k" for item in context.spec.data)


def _prepare(context: Context) -> CommandPlan:
    """GSM8K as parquet files, made by the checkout's own script from staged data."""
    script = (
        f'python3 {PREPARE_GSM8K} --local_dataset_path "${_data_variable(context)}"'
        ' --local_save_dir "$JOBSPEC_ATTEMPT_DIR/gsm8k"\n'
    )
    return CommandPlan("prepare", (script,), shell=True, cwd=context.repo_paths["verl"])  # noqa: S604


def _data_variable(context: Context) -> str:
    name = context.spec.data[0].name
    return "JOBSPEC_DATA_" + "".join(char if char.isalnum() else "_" for char in name).upper()


# -- expectations ------------------------------------------------------------------------------------


def _expect(context: Context, wrapper: Wrapper) -> ExpectPlan:
    spec, work = context.spec, settings.schedule(context)
    asked, parallel = spec.metrics.learning, spec.train.parallel
    learning = LearningPlan(asked.metric, asked.direction, asked.min_change) if asked else None
    if learning is None and context.level.name == "learning":
        learning = LearningPlan(METRIC_KEYS["reward"], "up")
    told = settings.variables(context, wrapper)
    features = {
        f"feature:{key}": settings.value_text(value)
        for key, value in spec.train.overrides.items()
        if context.level.name == "architecture"
    }
    return ExpectPlan(
        level=context.level.name,
        steps=work.steps,
        metrics_require=spec.metrics.require,
        learning=learning,
        files=spec.artifacts.require,
        checkpoint=work.save_every > 0,
        resume=work.half > 0,
        metric_keys=METRIC_KEYS,
        limitations=tuple(_limitations(context)),
        options={
            **{key: getattr(parallel, key) for key in ("tp", "pp", "cp", "ep", "etp")},
            "lora_rank": int(told["LORA_RANK"]) if told["LORA_RANK"].isdecimal() else 0,
            "critic": settings.estimator(context) == "gae",
            "resume_from": work.half,
            **features,
        },
    )


def _limitations(context: Context) -> Iterator[str]:
    overrides = context.spec.train.overrides
    if settings.reward_model(context) is None:
        yield "the reward model was off: rewards are verl's rule for GSM8K, and serving one is not proved"
    if str(overrides.get("USE_DUMMY_MODEL", False)) == "True":
        yield "a dummy model with random weights: import of real weights and rewards mean nothing"
    if str(overrides.get("LORA_RANK", settings.DEFAULT_LORA_RANK)) != "0":
        yield "a LoRA adapter was trained: full-parameter training is not proved"
    if overrides.get("actor_rollout_ref.rollout.enforce_eager"):
        yield "the rollout engine ran without CUDA graphs"
    yield "text-only data of GSM8K's shape: other modalities are not proved"
