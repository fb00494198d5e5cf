"""What verl's script tells Megatron, as the neutral shape that the generic rules and estimates read. Pure."""

from __future__ import annotations

from typing import Any

from jobspec.frameworks.base import Context
from jobspec.frameworks.shared.whole_numbers import is_count
from jobspec.frameworks.verl import batch_sizes, settings
from jobspec.frameworks.verl.checkout import Wrapper
from jobspec.megatron.shape import OptimizerShape, RolloutShape, TrainShape

MEMORY_FRACTION = 0.6  # fixed in the script, for rollout and reward model


def train_shape(context: Context, wrapper: Wrapper) -> TrainShape | None:
    """The actor's sizes; None when a value is no number, which the rules have named."""
    variables = settings.variables(context, wrapper)
    sizes, batch = settings.role_sizes(context, "actor"), batch_sizes.batch(context, wrapper)
    overrides = context.spec.train.overrides
    if batch is None or not context.gpus_per_node or not all(_is_size(value) for value in sizes.values()):
        return None
    rank, prompt, response, tokens = (
        _number(variables.get(name), default)
        for name, default in (
            ("LORA_RANK", 0),
            ("MAX_PROMPT_LENGTH", 512),
            ("MAX_RESPONSE_LENGTH", 512),
            ("PPO_MAX_TOKEN_LEN", 2400),
        )
    )
    offload = variables.get("ALL_OFFLOAD") == "True"
    return TrainShape(
        nodes=context.spec.resources.nodes,
        gpus_per_node=context.gpus_per_node,
        framework="verl",
        **sizes,
        seq_length=prompt + response,
        micro_batch=batch.micro if batch.static else None,
        tokens_per_microbatch=None if batch.static else tokens,
        train_batch=batch.train,
        samples_per_prompt=batch.responses,
        # Before release 0.8.0 the worker rounds a mini batch down and checks nothing.
        global_batch=None if wrapper.batch_grows_with_gpus else batch.mini * batch.responses,
        optimizer=OptimizerShape(offload=1.0 if variables.get("OPTIM_MEMORY_EFFICIENT") == "True" else 0.0),
        param_offload=variables.get("COMMON_PARAM_OFFLOAD", str(offload)) == "True",
        lora_rank=rank,
        reference=rank == 0,  # with an adapter the reference is the actor without it
        critic=settings.estimator(context) == "gae",
        rollout=RolloutShape(tp=settings.rollout_tp(context), memory_fraction=MEMORY_FRACTION),
        keys={
            **{
                name: f"train.overrides.ACTOR_{name.upper()}"
                for name in sizes
                if f"ACTOR_{name.upper()}" in overrides
            },
            "global_batch": batch.path("mini", "responses"),
            "train_batch": batch.path("train"),
            "micro_batch": batch.path("micro"),
        },
    )


def _is_size(value: Any) -> bool:
    return value is None or is_count(value)


def _number(text: str | None, default: int) -> int:
    return int(text) if text is not None and text.isdecimal() else default
