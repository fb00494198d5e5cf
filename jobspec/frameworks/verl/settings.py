"""Variables and Hydra overrides for verl's maintained script, by coverage level. Pure.

Source: verl, tests/special_e2e/run_ppo_trainer_megatron.sh, releases 0.7.0 to 0.10.0.dev.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from jobspec.finding import Finding
from jobspec.frameworks.base import Context
from jobspec.frameworks.shared import schedule as when
from jobspec.frameworks.shared.reward_file import RewardFile, find_reward_file
from jobspec.frameworks.shared.trackers import beside
from jobspec.frameworks.verl.checkout import Wrapper, needs_apex, read_config, unknown_part
from jobspec.frameworks.verl.levels import DEFAULT_LORA_RANK, Variant, variants_of
from jobspec.frameworks.verl.printed_config import value_text

DEFAULT_STEPS = {"smoke": 1, "checkpoint": 2, "parallel": 1, "fsdp": 1, "architecture": 1, "learning": 20}
# A script that lacks the variable behaves as with this value.
MEANT_BY_ABSENCE = {"USE_MEGATRON_FSDP": "False", "ROUTING_REPLAY_MODE": "disabled"}
ALGORITHMS = {"ppo": "gae"}
SIZES = ("tp", "pp", "cp", "ep", "etp", "vpp")
# Hydra's key, and what jobspec reads of it. Source: verl/utils/tracking.py, `supported_backend`.
LOGGER, OWN_TRACKERS = "trainer.logger", ("console", "file")
TRACKERS = (*OWN_TRACKERS, "wandb", "mlflow", "swanlab", "tensorboard", "clearml", "trackio", "vemlp_wandb")
QUEUE_UNITS = "transfer_queue.backend.SimpleStorage.num_data_storage_units"
ACTOR, CRITIC = "actor_rollout_ref.actor", "critic"
TRANSFORMER = "megatron.override_transformer_config"
FSDP_OVERRIDES = tuple(
    f"++{role}.{TRANSFORMER}.gradient_accumulation_fusion=False" for role in (ACTOR, CRITIC)
)


@dataclass(frozen=True)
class Overrides:
    """`train.overrides` split: the script's variables (capitals), and Hydra keys."""

    variables: Mapping[str, Any]
    hydra: Mapping[str, Any]


def schedule(context: Context) -> when.Schedule:
    return when.schedule(context, DEFAULT_STEPS)


def split_overrides(overrides: Mapping[str, Any]) -> Overrides:
    variables = {key: value for key, value in overrides.items() if key.isupper()}
    return Overrides(variables, {key: value for key, value in overrides.items() if key not in variables})


def chosen_variants(context: Context) -> tuple[Variant, ...]:
    return variants_of(context.level.number, context.spec.coverage.variants)


def estimator(context: Context) -> str:
    algorithm = (context.spec.train.algorithm or "ppo").lower()
    return ALGORITHMS.get(algorithm, algorithm)


def is_dummy(context: Context) -> bool:
    switch = context.spec.train.overrides.get("USE_DUMMY_MODEL", False)
    return str(switch) == "True" or any(item.name == "dummy" for item in chosen_variants(context))


def needs_modelopt(context: Context) -> bool:
    """Whether the Bridge's checkpointing is imported: by adapters that are saved, and by Megatron-FSDP."""
    saves = context.level.name == "checkpoint" or context.spec.checkpoint.every is not None
    adapter = not any(item.variables.get("LORA_RANK") == "0" for item in chosen_variants(context))
    return context.level.name == "fsdp" or (saves and adapter)


def environment_needs(context: Context, bridge: str) -> Iterator[dict[str, Any]]:
    """Modules that default settings of verl and of the Bridge checkout at `bridge` need, unless the spec sets
    others: alternatives of each, and what is said where none is there.

    Source: Megatron-Core 0.19 (`ColumnParallelLinear`), Transformer Engine 2.20 (`get_attention_backend`).
    """
    hydra, config = _hydra(context), read_config(context.repo_paths)
    roles = (ACTOR, CRITIC) if estimator(context) == "gae" else (ACTOR,)
    for role in roles:
        fusion = f"{role}.{TRANSFORMER}.gradient_accumulation_fusion"
        if needs_apex(bridge) and hydra.get(fusion) is not False and context.level.name != "fsdp":
            yield {
                "any_of": ["fused_weight_gradient_mlp_cuda"],
                "problem": "Apex's fused_weight_gradient_mlp_cuda is not there, and Megatron's output layer "
                f"asks for it: set `train.overrides.++{fusion}: false`",
            }
    for role in roles:
        backend = f"{role}.{TRANSFORMER}.attention_backend"
        if hydra.get(backend, _at(config, backend)) == "flash":
            yield {
                "any_of": ["flash_attn", "flash_attn_3", "flash_attn_interface"],
                "problem": "no flash-attn is there, and the attention backend is `flash`, verl's default: "
                f"set `train.overrides.{backend}: auto`",
            }


def queue_units(context: Context) -> int:
    """Storage units of TransferQueue, an actor with one CPU core each; 0 where the trainer uses none.

    Source: verl 0.9.1, `trainer/main_ppo.py`: the V1 trainer always starts it.
    """
    config, hydra = read_config(context.repo_paths), _hydra(context)
    if not hydra.get("trainer.use_v1", _at(config, "trainer.use_v1")):
        return 0
    units = hydra.get(QUEUE_UNITS, _at(config, QUEUE_UNITS))
    return units if isinstance(units, int) else 0


def _hydra(context: Context) -> dict[str, Any]:
    """The spec's Hydra overrides by their bare keys."""
    hydra = split_overrides(context.spec.train.overrides).hydra
    return {key.lstrip("+"): value for key, value in hydra.items()}


def _at(config: Any, key: str) -> Any:
    """The value of a dotted key; None when it is not there."""
    for part in key.split("."):
        config = config.get(part) if isinstance(config, Mapping) else None
    return config


# -- sizes -------------------------------------------------------------------------------------------


def sizes(context: Context) -> dict[str, int | None]:
    """Common sizes of all roles: the spec's, else those of the requested variants."""
    parallel = context.spec.train.parallel
    common: dict[str, int | None] = {name: getattr(parallel, name) for name in SIZES}
    for variant in chosen_variants(context):
        defaults = {name: size for name, size in variant.sizes.items() if name in common}
        related = ("ep", "etp") if "ep" in defaults else ("tp", "pp", "cp", "vpp")
        if defaults and not any((common[name] or 1) > 1 for name in related):
            common.update(defaults)
    return common


def role_sizes(context: Context, role: str) -> dict[str, Any]:
    """Sizes of one role: `ACTOR_TP` and the like win over the common ones."""
    overrides = context.spec.train.overrides
    return {
        name: overrides.get(f"{role.upper()}_{name.upper()}", size) for name, size in sizes(context).items()
    }


def rollout_tp(context: Context) -> int:
    """Tensor-parallel size of a rollout engine: the spec's, else the `tp` of all roles."""
    tp = context.spec.train.rollout.tp
    if tp:
        return tp
    return sizes(context)["tp"] or 1


# -- variables ---------------------------------------------------------------------------------------


def variables(context: Context, wrapper: Wrapper) -> dict[str, str]:
    """The script's variables that do not depend on the run's folders, the spec's own on top.

    A variable that this checkout lacks is left out only where its absence means the same.
    """
    common, run_schedule = sizes(context), schedule(context)
    learning = context.level.name == "learning"
    values = {
        "ENGINE": "vllm",
        "NUM_GPUS": str(context.gpus_per_node),
        "USE_MBRIDGE": "True",
        "VANILLA_MBRIDGE": "False",
        "VALUE_VANILLA_MBRIDGE": "False",
        "LORA_RANK": str(DEFAULT_LORA_RANK),
        "USE_MEGATRON_FSDP": str(context.level.name == "fsdp"),
        **{f"COMMON_{name.upper()}": value_text(size) for name, size in common.items()},
        "INFER_TP": str(rollout_tp(context)),
        "ALL_OFFLOAD": "False",
        "ADV_ESTIMATOR": estimator(context),
        "SAVE_FREQ": str(run_schedule.save_every or -1),
        "VAL_BEFORE_TRAIN": str(learning),
        "TEST_FREQ": str(max(1, run_schedule.steps // 2)) if learning else "-1",
        "ROUTING_REPLAY_MODE": "disabled",
        "PROFILE_STEPS": "null",  # the script's own default needs `nsys` in every worker
    }
    if wrapper.reads("VERL_USE_UV"):
        values["VERL_USE_UV"] = "0"  # `uv run` would install packages of its own choice
    for variant in chosen_variants(context):
        values |= variant.variables
    overrides = split_overrides(context.spec.train.overrides).variables
    values.update({name: value_text(value) for name, value in overrides.items()})
    absent = {n for n, meant in MEANT_BY_ABSENCE.items() if values[n] == meant and not wrapper.reads(n)}
    return {name: value for name, value in values.items() if name not in absent}


def arguments(context: Context, wrapper: Wrapper) -> tuple[str, ...]:
    """Hydra overrides that do not depend on the run's folders; the last of two wins."""
    spec, run_schedule = context.spec, schedule(context)
    overrides = [
        f"{LOGGER}=[{','.join(trackers(context))}]",
        f"trainer.nnodes={spec.resources.nodes}",
        # The loop ends without an error when epochs run out first; the worst case is one step an epoch.
        f"trainer.total_epochs={max(2, run_schedule.steps)}",
    ]
    if reward_model(context) is None:
        overrides.append(f"{wrapper.reward_switch}=False")
    function = reward_function(context)
    if isinstance(function, RewardFile):
        key = custom_reward_key(context)
        overrides += [f"{key}.path={function.file}", f"{key}.name={function.function}"]
    if spec.train.seed is not None:
        overrides.append(f"data.seed={spec.train.seed}")
    if spec.checkpoint.keep:
        roles = ("actor", "critic") if estimator(context) == "gae" else ("actor",)
        overrides += [f"trainer.max_{role}_ckpt_to_keep={spec.checkpoint.keep}" for role in roles]
    if context.level.name == "fsdp":
        overrides += FSDP_OVERRIDES
    cpus = spec.resources.cpus_per_node or context.cluster.node.cpus
    if spec.launch.mode == "srun" and cpus:  # verl's own Ray; attached to a cluster it would be an error
        overrides.append(f"ray_kwargs.ray_init.num_cpus={cpus}")
    for variant in chosen_variants(context):
        overrides += variant.overrides
    hydra = split_overrides(spec.train.overrides).hydra.items()
    return (*overrides, *(f"{added(key)}={value_text(value)}" for key, value in hydra if key != LOGGER))


def trackers(context: Context) -> tuple[str, ...]:
    return beside(OWN_TRACKERS, context.spec.train.overrides.get(LOGGER))


def added(key: str) -> str:
    """`+key` as `++key`: the script itself adds some keys with `+`, and a second one is an error."""
    return f"+{key}" if key.startswith("+") and not key.startswith("++") else key


def reward_model(context: Context) -> str | None:
    """The reward model of `train.reward: model:NAME`; None for verl's own rule reward."""
    kind, _, name = (context.spec.train.reward or "rule").partition(":")
    return name if kind == "model" and name else None


def reward_function(context: Context) -> RewardFile | Finding | None:
    """The function of `train.reward: path/in/repo.py:function`, or what is wrong; None for other rewards."""
    reward = context.spec.train.reward or "rule"
    if ":" not in reward or reward_model(context) is not None:
        return None
    return find_reward_file(context, reward, "verl.reward")


def custom_reward_key(context: Context) -> str:
    """Where this checkout's configuration takes the user's reward function.

    It is below `reward.` from release 0.7.1 on; the old place is still there, and is copied or ignored.
    """
    config = read_config(context.repo_paths)
    new = "reward.custom_reward_function"
    return (
        new if config is not None and unknown_part(config, f"{new}.path") is None else new.partition(".")[2]
    )
