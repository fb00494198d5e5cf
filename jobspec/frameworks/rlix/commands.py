"""The wrapper files and the two commands of a run. Pure: text alone, and the plan holds all of it."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import yaml

from jobspec.frameworks.base import Context
from jobspec.frameworks.rlix.checkout import DRIVER, roots
from jobspec.frameworks.rlix.settings import ADMIT, COLOCATED, OFFLOAD, SLEEP_LEVEL, VERIFY, PipelineSettings
from jobspec.plan import CommandPlan
from jobspec.runtime.drivers.rlix import cache

LINK, RUN = "cache-link", "rlix"
PIPELINE_CLASS = "rlix.pipeline.nemo_rl_pipeline.NemoRLFullFinetunePipeline"
ROOT = str(cache.ROOT)
END = "JOBSPEC_END"
NOTE = "rlix/made"  # names of the folders that RLix makes below `ROOT`, one for each pipeline
LINKER, RUNNER = "jobspec.runtime.drivers.rlix.cache", "jobspec.runtime.drivers.rlix.driver"
# Ray itself reads these, so they are set before `ray start`; the driver hands them to actors only. Some
# thirty actors with fifty threads each soon reach a container's limit of processes (3840 was seen).
THREADS: Mapping[str, str] = {
    "OMP_NUM_THREADS": "1",
    "MKL_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
    "NUMEXPR_NUM_THREADS": "1",
    "RAYON_NUM_THREADS": "1",  # of tokenizers
    "TF_NUM_INTEROP_THREADS": "1",
    "TF_NUM_INTRAOP_THREADS": "1",
    "TOKENIZERS_PARALLELISM": "false",
    "RAY_num_server_call_thread": "1",
    "RAY_num_grpc_internal_threads": "1",
    "RAY_worker_num_grpc_internal_threads": "1",
    "RAY_object_manager_rpc_threads_num": "1",
    "RAY_gcs_server_rpc_server_thread_num": "1",
    "RAY_gcs_server_rpc_client_thread_num": "1",
}


class _Plain(yaml.SafeDumper):
    """Writes a repeated list in full each time: an anchor helps nobody who reads the file."""

    def ignore_aliases(self, data: object) -> bool:
        return True


def environment(context: Context, bucket: int | None) -> dict[str, str]:
    """Variables that are exported before Ray starts on every node; the spec and the site win over them."""
    env = {
        **THREADS,
        "CUDA_DEVICE_MAX_CONNECTIONS": "1",
        # NCCL's watchdog thread was seen to crash where threads run short.
        "TORCH_NCCL_ENABLE_MONITORING": "0",
        # Pipelines print lines that differ in numbers alone, which Ray would drop.
        "RAY_DEDUP_LOGS": "0",
        "RLIX_REQUIRED_GPUS_PER_NODE": str(context.gpus_per_node),
    }
    if bucket:
        env["RLIX_BUCKET_SIZE_BYTES"] = str(bucket)
    if "trace" in context.spec.coverage.variants:
        env |= {
            "RLIX_ENABLE_GPU_TRACING": "1",
            "RLIX_TRACE_OUTPUT_DIR": "${JOBSPEC_ATTEMPT_DIR}/rlix/trace",
        }
    return env


def wrapper(pipeline: PipelineSettings) -> dict[str, Any]:
    """RLix's configuration of one pipeline. `${oc.env:...}` is OmegaConf's, filled in by RLix's driver."""
    train, infer = list(pipeline.train), list(pipeline.infer)
    return {
        "pipeline_cls": PIPELINE_CLASS,
        "exp_name": pipeline.name,
        "nemo_config_path": config_path(pipeline),
        "nemo_config_overrides": list(pipeline.arguments),
        "train_device_mapping": train,
        "infer_device_mapping": infer,
        "num_gpus_per_node": pipeline.context.gpus_per_node,
        COLOCATED: pipeline.wrapper[COLOCATED],
        VERIFY: pipeline.wrapper[VERIFY],
        # Each attempt has folders of its own, and metrics must lie where they are looked for.
        "nemo_increment_log_dir": False,
        "actor_train": {
            "device_mapping": train,
            "offload_nccl": pipeline.wrapper[OFFLOAD[0]],
            "strategy_args": {"strategy_name": "megatron_train"},
        },
        "actor_infer": {
            "device_mapping": infer,
            "offload_nccl": pipeline.wrapper[OFFLOAD[1]],
            "strategy_args": {
                "strategy_name": "vllm",
                "strategy_config": {"sleep_level": pipeline.wrapper[SLEEP_LEVEL]},
            },
        },
    }


def config_path(pipeline: PipelineSettings) -> str:
    """NeMo-RL's configuration file, absolute."""
    config = pipeline.spec.config
    return config if config.startswith("/") else f"{roots(pipeline.context)[1]}/{config}"


def commands(context: Context, pipelines: Sequence[PipelineSettings]) -> tuple[CommandPlan, ...]:
    """The cache link on every node, then RLix's driver on the head with one wrapper for each pipeline."""
    text = _run_text(context, pipelines)
    return (
        CommandPlan(LINK, (context.container.python, "-m", LINKER), on="all"),
        CommandPlan(RUN, (text,), shell=True, cwd=roots(context)[1]),  # noqa: S604 - plain data, starts nothing
    )


def _run_text(context: Context, pipelines: Sequence[PipelineSettings]) -> str:
    launcher = context.spec.train.command or ("python3",)
    names = ",".join(pipeline.name for pipeline in pipelines)
    delay = pipelines[0].wrapper[ADMIT]  # the driver's, one for all
    words = [
        f"{shlex.quote(context.container.python)} -m {RUNNER}",
        f"--pipelines {shlex.quote(names)}",
        f'--note "$JOBSPEC_ATTEMPT_DIR/{NOTE}" --',
        *(shlex.quote(word) for word in (*launcher, f"{roots(context)[0]}/{DRIVER}")),
        '--config_path "$out/configs"',
        f"--config_name {shlex.quote(names)}",
        *([f"--admit-delay-s {shlex.quote(str(delay))}"] if len(pipelines) > 1 else []),
    ]
    lines = ['out="$JOBSPEC_ATTEMPT_DIR/rlix"', 'mkdir -p "$out/configs" "$out/trace"']
    lines += [line for pipeline in pipelines for line in _wrapper_lines(pipeline)]
    lines += [" \\\n  ".join(words)]
    return "\n".join(lines) + "\n"


def _wrapper_lines(pipeline: PipelineSettings) -> Iterator[str]:
    """One pipeline's wrapper and folders. NeMo-RL writes its events to `tensorboard` below its log folder."""
    name = shlex.quote(pipeline.name)
    yield f"cat > \"$out/configs/\"{name}.yaml <<'{END}'"
    yield yaml.dump(wrapper(pipeline), Dumper=_Plain, sort_keys=False, width=1000, allow_unicode=True) + END
    yield f'mkdir -p "$out/"{name} "$JOBSPEC_METRICS_DIR/@"{name}'
    yield f'ln -sfn "$JOBSPEC_METRICS_DIR/@"{name} "$out/"{name}/tensorboard'
