"""What verl's maintained script is given: its variables and Hydra overrides, by coverage level. Pure.

Source: verl, tests/special_e2e/run_ppo_trainer_megatron.sh, releases 0.7.0 to 0.10.0.dev.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from jobspec.frameworks.base import Context
from jobspec.frameworks.verl.checkout import Wrapper

DEFAULT_STEPS = {"smoke": 1, "checkpoint": 2, "parallel": 1, "fsdp": 1, "architecture": 1, "learning": 20}
DEFAULT_LORA_RANK = 4
# A variable that is not there means just this value.
MEANT_BY_ABSENCE = {"USE_MEGATRON_FSDP": "False", "ROUTING_REPLAY_MODE": "disabled"}
# The later script names the place to offload to, and no longer says yes or no.
OFFLOAD_TARGET = {"False": "none", "True": "cpu"}
ALGORITHMS = {"ppo": "gae"}
FSDP_OVERRIDES = tuple(
    f"++{role}.megatron.override_transformer_config.gradient_accumulation_fusion=False"
    for role in ("actor_rollout_ref.actor", "actor_rollout_ref.ref", "critic")
)


@dataclass(frozen=True)
class Schedule:
    """Steps in all, how often to save (0: never), and the step of the resume (0: none)."""

    steps: int
    save_every: int
    half: int


@dataclass(frozen=True)
class Overrides:
    """`train.overrides` split: the script's variables (capitals), and Hydra keys."""

    variables: Mapping[str, Any]
    hydra: Mapping[str, Any]


def schedule(context: Context) -> Schedule:
    """Steps as asked or by level; saves only where asked for, or where the level needs them."""
    steps = context.spec.train.steps or DEFAULT_STEPS[context.level.name]
    half = steps // 2 if context.level.name == "checkpoint" else 0
    every = context.spec.checkpoint.every or half or (steps if context.spec.checkpoint.dir else 0)
    return Schedule(steps, every, half)


def split_overrides(overrides: Mapping[str, Any]) -> Overrides:
    variables = {key: value for key, value in overrides.items() if key.isupper()}
    return Overrides(variables, {key: value for key, value in overrides.items() if key not in variables})


def value_text(value: Any) -> str:
    """A value as Hydra and the script write it: `True`, `null`, `[a,b]`."""
    if isinstance(value, (list, tuple)):
        return f"[{','.join(value_text(item) for item in value)}]"
    return "null" if value is None else str(value)


def estimator(context: Context) -> str:
    asked = (context.spec.train.algorithm or "ppo").lower()
    return ALGORITHMS.get(asked, asked)


def rollout_tp(context: Context) -> int:
    return context.spec.train.rollout.tp or context.spec.train.parallel.tp


def variables(context: Context, wrapper: Wrapper) -> dict[str, str]:
    """The script's variables that do not depend on the run's folders, the spec's own on top.

    A variable that this checkout lacks is left out only where its absence means the same.
    """
    parallel, work = context.spec.train.parallel, schedule(context)
    learning = context.level.name == "learning"
    wanted = {
        "ENGINE": "vllm",
        "NUM_GPUS": str(context.gpus_per_node),
        "USE_MBRIDGE": "True",
        "VANILLA_MBRIDGE": "False",
        "VALUE_VANILLA_MBRIDGE": "False",
        "LORA_RANK": str(DEFAULT_LORA_RANK),
        "USE_MEGATRON_FSDP": str(context.level.name == "fsdp"),
        "COMMON_PP": str(parallel.pp),
        "COMMON_VPP": value_text(parallel.vpp),
        "COMMON_CP": str(parallel.cp),
        "COMMON_TP": str(parallel.tp),
        "COMMON_EP": str(parallel.ep),
        "COMMON_ETP": str(parallel.etp),
        "INFER_TP": str(rollout_tp(context)),
        "ALL_OFFLOAD": "False",
        "ADV_ESTIMATOR": estimator(context),
        "SAVE_FREQ": str(work.save_every or -1),
        "VAL_BEFORE_TRAIN": str(learning),
        "TEST_FREQ": str(max(1, work.steps // 2)) if learning else "-1",
        "ROUTING_REPLAY_MODE": "disabled",
        "PROFILE_STEPS": "null",  # the script's own default needs `nsys` in every worker
    }
    if wrapper.reads("VERL_USE_UV"):
        wanted["VERL_USE_UV"] = "0"  # `uv run` would install packages of its own choice
    own = split_overrides(context.spec.train.overrides).variables
    wanted.update({name: value_text(value) for name, value in own.items()})
    if not wrapper.reads("ALL_OFFLOAD") and wrapper.reads("OFFLOAD_TARGET"):
        target = OFFLOAD_TARGET.get(wanted.pop("ALL_OFFLOAD"), "none")
        wanted.setdefault("OFFLOAD_TARGET", target)
    absent = {n for n, meant in MEANT_BY_ABSENCE.items() if wanted[n] == meant and not wrapper.reads(n)}
    return {name: value for name, value in wanted.items() if name not in absent}


def arguments(context: Context, wrapper: Wrapper) -> tuple[str, ...]:
    """Hydra overrides that do not depend on the run's folders; the last of two wins."""
    spec, work = context.spec, schedule(context)
    chosen = [
        "trainer.logger=[console,file]",
        f"trainer.nnodes={spec.resources.nodes}",
        # The loop ends without an error when epochs run out before steps do; one step an epoch is the worst.
        f"trainer.total_epochs={max(2, work.steps)}",
    ]
    if reward_model(context) is None:
        chosen.append(f"{wrapper.reward_switch}=False")
    if spec.train.seed is not None:
        chosen.append(f"data.seed={spec.train.seed}")
    if spec.checkpoint.keep:
        roles = ("actor", "critic") if estimator(context) == "gae" else ("actor",)
        chosen += [f"trainer.max_{role}_ckpt_to_keep={spec.checkpoint.keep}" for role in roles]
    if context.level.name == "fsdp":
        chosen += FSDP_OVERRIDES
    hydra = split_overrides(spec.train.overrides).hydra
    return (*chosen, *(f"{key}={value_text(value)}" for key, value in hydra.items()))


def reward_model(context: Context) -> str | None:
    """The reward model of `train.reward: model:NAME`; None for verl's own rule reward."""
    kind, _, name = (context.spec.train.reward or "rule").partition(":")
    return name if kind == "model" and name else None
