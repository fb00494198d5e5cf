"""The commands of a verl run: look where the imports come from, prepare data, run the checkout's script."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from pathlib import PurePosixPath

from jobspec.frameworks.base import Context
from jobspec.frameworks.shared.piped_script import import_probe
from jobspec.frameworks.shared.repo_tests import check_commands
from jobspec.frameworks.verl import settings
from jobspec.frameworks.verl.checkout import (
    IMAGE_MEGATRON,
    PREPARE_GSM8K,
    WRAPPER,
    Wrapper,
    guide_tests,
    megatron_core,
)
from jobspec.plan import CommandPlan, data_variable
from jobspec.spec.job import Repo

BRIDGE = "megatron.bridge"
WORKER_ENV = "++ray_kwargs.ray_init.runtime_env.env_vars"
# Every trainer imports this; since Bridge 0.6 it needs `megatron-energon`.
TRAINING = "megatron.bridge.training.config"
# Saving an adapter, and Megatron-FSDP, pull this in; it needs `nvidia-modelopt`, which some images lack.
CHECKPOINTING = "megatron.bridge.training.checkpointing"
NEEDS_PYTHON = """
command -v python >/dev/null || {
  echo "jobspec: blocked: verl's script calls 'python' for a dummy model, and there is only python3" >&2
  exit 3
}
"""
# Hydra reads `,` `=` and brackets in a value as its own grammar, and the script splits at blanks.
GUARD = r"""
for name in $checked; do
  case "${!name}" in
    *[!A-Za-z0-9_./:@%+-]*)
      echo "jobspec: blocked: $name is '${!name}': Hydra takes letters, digits and _./:@%+- only" >&2
      exit 2 ;;
  esac
done
"""


def commands(context: Context, wrapper: Wrapper) -> tuple[CommandPlan, ...]:
    """In the order in which they run."""
    schedule = settings.schedule(context)
    parts = (
        [("train", schedule.half), ("resume", schedule.steps)]
        if schedule.half
        else [("train", schedule.steps)]
    )
    first = [probe(context, wrapper)]
    if prepares(context):
        first.append(_prepare(context))
    return (*first, *(_train(context, wrapper, label, until) for label, until in parts))


def checks(context: Context) -> tuple[CommandPlan, ...]:
    """The asked tests; for the Bridge, with those of the guide's tests that its checkout has."""
    repo = bridge_repo(context)
    path = context.repo_paths.get(repo.name, "") if repo else ""
    defaults = {repo.name: guide_tests(path)} if repo else {}
    return check_commands(context, context.container.python, defaults)


def bridge_repo(context: Context) -> Repo | None:
    """The repository that proves the import of Megatron-Bridge."""
    proved = (repo for repo in context.spec.repos if repo.prove is not None and repo.prove.module == BRIDGE)
    return next(proved, None)


# -- probe -------------------------------------------------------------------------------------------


def probe(context: Context, wrapper: Wrapper) -> CommandPlan:
    """Prints where the packages come from, in the driver and in a Ray worker, and ends a void run early."""
    bridge = bridge_repo(context)
    request = {
        "modules": ["verl", BRIDGE, "megatron.core", "modelopt"],
        "needed": [TRAINING, *([CHECKPOINTING] if settings.needs_modelopt(context) else [])],
        "needs": list(
            settings.environment_needs(context, context.repo_paths.get(bridge.name, "") if bridge else "")
        ),
        "roots": dict(_roots(context)),
    }
    lines = [*_ray_lines(context), 'export JOBSPEC_WORKER_PYTHONPATH="$PYTHONPATH"']
    if wrapper.prefers_image_megatron:  # what the driver will see
        lines.append(f'export PYTHONPATH="{IMAGE_MEGATRON}:$PYTHONPATH"')
    lines.append(import_probe("python3", request))
    return _shell("probe", lines, context)


def _roots(context: Context) -> Iterator[tuple[str, str]]:
    """Modules that must come from a checkout, with its folder; modules that no checkout has are left out."""
    yield "verl", context.repo_paths["verl"]
    bridge = bridge_repo(context)
    if bridge is not None and bridge.name in context.repo_paths:
        yield BRIDGE, context.repo_paths[bridge.name]
    for repo in context.spec.repos:
        core = megatron_core(context.repo_paths.get(repo.name, ""), repo.pythonpath)
        if core is not None:
            yield "megatron.core", core
            return


# -- training ----------------------------------------------------------------------------------------


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
    folders = dict(_folders(context, label))
    lines = ["unset ROCR_VISIBLE_DEVICES HIP_VISIBLE_DEVICES  # verl's workers refuse them beside CUDA's"]
    lines += _ray_lines(context)
    if wrapper.calls_plain_python and settings.is_dummy(context):
        lines.append(NEEDS_PYTHON)
    lines += [f"export {name}={shlex.quote(value)}" for name, value in sorted(fixed.items())]
    lines += [f'export {name}="{value}"' for name, value in folders.items()]
    lines.append(f'checked="{" ".join((*folders, "PYTHONPATH"))}"{GUARD}')
    words = [
        *(shlex.quote(word) for word in settings.arguments(context, wrapper)),
        '"trainer.default_local_dir=$VERL_CHECKPOINTS"',
        f'"{WORKER_ENV}.VERL_FILE_LOGGER_PATH=$VERL_FILE_LOGGER_PATH"',
        f'"{WORKER_ENV}.PYTHONPATH=$PYTHONPATH"',
    ]
    lines.append(" \\\n  ".join([f"bash {WRAPPER}", *words]))
    return _shell(label, lines, context)


def _folders(context: Context, label: str) -> Iterator[tuple[str, str]]:
    """Variables that hold folders of this run, in terms of those that the runtime sets."""
    yield "MODEL_PATH", "$JOBSPEC_MODEL_PATH"
    # The script keeps a model that is already there: never one of another run, but a resume's own.
    yield "DUMMY_MODEL_PATH", "$JOBSPEC_ATTEMPT_DIR/dummy_model"
    names = {item.name for item in context.spec.data}
    if names == {"train", "val"}:
        yield "TRAIN_FILES", "$JOBSPEC_DATA_TRAIN"
        yield "VAL_FILES", "$JOBSPEC_DATA_VAL"
    else:
        folder = "$JOBSPEC_ATTEMPT_DIR/gsm8k" if prepares(context) else f"${_data_variable(context)}"
        yield "TRAIN_FILES", f"{folder}/train.parquet"
        yield "VAL_FILES", f"{folder}/test.parquet"
    yield "VERL_CHECKPOINTS", _checkpoints(context)
    # verl truncates the file when it starts: a resume has another one.
    yield "VERL_FILE_LOGGER_PATH", f"$JOBSPEC_METRICS_DIR/{label}.jsonl"


def _checkpoints(context: Context) -> str:
    """Level `checkpoint` begins in an empty folder: verl's names tell no runs apart."""
    if context.level.name != "checkpoint":
        return "$JOBSPEC_CHECKPOINT_DIR"
    run = "/$(basename $JOBSPEC_RUN_DIR)" if context.spec.checkpoint.dir else ""
    return f"$JOBSPEC_CHECKPOINT_DIR{run}/attempt-$JOBSPEC_ATTEMPT"


def _ray_lines(context: Context) -> list[str]:
    """In mode `srun` verl starts its own Ray: it must not join another that runs on the machine."""
    return ["export RAY_ADDRESS=local"] if context.spec.launch.mode == "srun" else []


# -- data --------------------------------------------------------------------------------------------


def prepares(context: Context) -> bool:
    return any(item.prepare == "gsm8k" for item in context.spec.data)


def _prepare(context: Context) -> CommandPlan:
    """GSM8K as parquet files, made by the checkout's own script from staged data."""
    source, target = f'"${_data_variable(context)}"', '"$JOBSPEC_ATTEMPT_DIR/gsm8k"'
    lines = [
        f"mkdir -p {target}",
        f"python3 {PREPARE_GSM8K} --local_dataset_path {source} --local_save_dir {target}",
        f"ls -l {target}/train.parquet {target}/test.parquet",
    ]
    return _shell("prepare", lines, context)


def _data_variable(context: Context) -> str:
    return data_variable(context.spec.data[0].name)


def _shell(name: str, lines: list[str], context: Context) -> CommandPlan:
    text = "\n".join(lines) + "\n"
    return CommandPlan(name, (text,), shell=True, cwd=context.repo_paths["verl"])  # noqa: S604 - starts nothing
