"""verl's coverage levels and their variants as data: what each changes, needs, and must show.

Source: the validation guide of Megatron-Bridge for verl, levels 0 to 5, and verl 0.7.0 to 0.10.0.dev.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from jobspec.frameworks.base import Level, VariantNote
from jobspec.frameworks.shared.schedule import ONE_SEED

MEGATRON = "actor_rollout_ref.actor.megatron"
MTP = "actor_rollout_ref.model.mtp"
LORA = "actor_rollout_ref.model.lora.rank"
DEFAULT_LORA_RANK = 4


@dataclass(frozen=True)
class Variant:
    """What one variant adds to its level.

    `variables` are the script's, `overrides` are Hydra's. `sizes` are defaults of `train.parallel` (and
    `rollout_tp`) for a spec that sets none of them. `shows` maps keys of verl's configuration to a pattern of
    the required value. `lines` names the required facts of the log (`experts`, `dummy`).
    """

    name: str
    levels: tuple[int, ...]
    about: str
    needs: str = ""
    variables: Mapping[str, str] = field(default_factory=dict)
    overrides: tuple[str, ...] = ()
    sizes: Mapping[str, int] = field(default_factory=dict)
    shows: Mapping[str, str] = field(default_factory=dict)
    lines: tuple[str, ...] = ()
    proof: str = ""
    limits: tuple[str, ...] = ()


DUMMY_LIMIT = "a dummy model with random weights: import of real weights and rewards mean nothing"
FULL = {"LORA_RANK": "0"}
VARIANTS = (
    Variant(
        "lora",
        (0, 1, 5),
        "a LoRA adapter of rank 4 on the Bridge-built model, with DDP (the default)",
        variables={"LORA_RANK": str(DEFAULT_LORA_RANK)},
        shows={LORA: r"[1-9]\d*"},
        proof="the PEFT block with trainable parameters",
    ),
    Variant(
        "full",
        (0, 1, 2, 3, 4, 5),
        "all parameters are trained, no adapter",
        needs="memory for gradients and optimizer state of the whole model",
        variables=FULL,
        shows={LORA: "0"},
        proof=f"`{LORA}` 0 in verl's configuration",
    ),
    Variant(
        "dummy",
        (0, 1, 2, 3, 4),
        "a model of the same kind with random weights and fewer layers",
        needs="`train.overrides.DUMMY_MODEL_CONFIG_PATH`, a JSON file with the smaller sizes",
        variables={"USE_DUMMY_MODEL": "True"},
        lines=("dummy",),
        proof="the last line that the checkout's script prints about a new model",
        limits=(DUMMY_LIMIT,),
    ),
    Variant(
        "reward-model",
        (0, 5),
        "rewards of a model that verl serves beside the rollout engines",
        needs="`train.reward: model:NAME`",
        shows={"reward.reward_model.enable": "True"},
        proof="the reward model is on in verl's configuration",
    ),
    Variant(
        "save-resume",
        (1,),
        "one process saves, a second one loads and trains on (the default)",
        needs="room for two checkpoints; `nvidia-modelopt` in the image",
        proof="tracker file, manifests, load lines of every role, and only the new steps after the resume",
    ),
    Variant(
        "dense",
        (2,),
        "tensor, pipeline or context parallelism (`tp: 2, pp: 2` where the spec gives no size)",
        needs="4 GPUs for the default sizes",
        sizes={"tp": 2, "pp": 2, "rollout_tp": 2},
        proof="the sizes of the actor in verl's configuration",
    ),
    Variant(
        "moe",
        (2,),
        "expert parallelism (`ep: 2` where the spec gives none), router replay off",
        needs="a mixture-of-experts model and 2 GPUs",
        sizes={"ep": 2},
        shows={f"{MEGATRON}.router_replay.mode": "disabled"},
        proof="the expert sizes of the actor in verl's configuration",
    ),
    Variant(
        "megatron-fsdp",
        (3,),
        "Megatron-FSDP in place of DDP (the default)",
        needs="verl 0.8.0 or newer; 2 GPUs to shard anything",
        shows={f"{MEGATRON}.use_megatron_fsdp": "True"},
        proof="`use_megatron_fsdp` True in verl's configuration",
    ),
    Variant(
        "moe-model",
        (4,),
        "a mixture-of-experts model without expert parallelism",
        needs="a mixture-of-experts model",
        lines=("experts",),
        proof="the number of experts in the printed configuration of the model",
        limits=("expert parallelism belongs to level `parallel`",),
    ),
    Variant(
        "vlm",
        (4,),
        "a vision-language model",
        needs="a vision-language model; image data and its keys in `train.overrides`",
        limits=("no log of verl shows the effect of images: the vision path needs a test of its own",),
        proof="the steps alone",
    ),
    Variant(
        "mtp",
        (4,),
        "multi-token prediction layers are trained",
        needs="a model with such layers, verl 0.7.1 or newer",
        overrides=(f"++{MTP}.enable=True", f"++{MTP}.enable_train=True"),
        shows={f"{MTP}.enable": "True", f"{MTP}.enable_train": "True"},
        proof="both switches in verl's configuration",
        limits=("the loss of the extra layers was not compared with another implementation",),
    ),
    Variant(
        "qat",
        (4,),
        "quantization-aware training through ModelOpt",
        needs="`nvidia-modelopt` in the image, verl 0.8.0 or newer",
        overrides=(f"++{MEGATRON}.qat.enable=True",),
        shows={f"{MEGATRON}.qat.enable": "True"},
        proof="the switch in verl's configuration",
        limits=("the accuracy of the quantized model was not measured",),
    ),
    *(
        Variant(
            f"router-replay-{mode.lower()}",
            (4,),
            f"routing decisions of {origin} are replayed",
            needs="a mixture-of-experts model, verl 0.7.1 or newer",
            variables={"ROUTING_REPLAY_MODE": mode},
            shows={f"{MEGATRON}.router_replay.mode": mode}
            | ({"actor_rollout_ref.rollout.enable_rollout_routing_replay": "True"} if mode == "R3" else {}),
            proof="the mode in verl's configuration",
            limits=("verl does not log whether replayed and recorded routes agree",),
        )
        for mode, origin in (("R2", "the first forward pass"), ("R3", "the rollout"))
    ),
)
DEFAULT = {0: "lora", 1: "save-resume", 3: "megatron-fsdp", 5: "lora"}

PARITY = "the model's own correctness: parity with Hugging Face belongs to the Bridge's own tests"
NOT_PROVED = (
    PARITY,
    "convergence: no threshold of a benchmark was agreed",
)
NO_LEARNING = "nothing is proved about learning"
INPUTS = (
    "checkouts of verl and Megatron-Bridge, a small model, GSM8K-shaped data, 3 CPU cores a GPU and 11 more "
    "(1 before verl 0.9)"
)


def _level(name: str, number: int, proves: str, needs: str, *not_proved: str) -> Level:
    variants = [item for item in VARIANTS if number in item.levels]
    notes = tuple(VariantNote(item.name, item.about, item.needs, item.proof) for item in variants)
    return Level(
        name, number, proves, (*NOT_PROVED, *not_proved), tuple(item.name for item in variants), needs, notes
    )


LEVELS = (
    _level(
        "smoke",
        0,
        "verl built the model by Megatron-Bridge and finished the planned steps under its Megatron trainer",
        f"1 GPU; {INPUTS}",
        NO_LEARNING,
    ),
    _level(
        "checkpoint",
        1,
        "verl saved the Bridge-built model, and a new process loaded model and optimizer and trained on",
        f"1 GPU; {INPUTS}; shared storage for checkpoints",
        NO_LEARNING,
        "a resume with another number of GPUs or other sizes",
    ),
    _level(
        "parallel",
        2,
        "the planned steps ran with the asked sizes of model parallelism in verl's own configuration",
        f"as many GPUs as the sizes ask for, 4 or 2 by default; {INPUTS}",
        NO_LEARNING,
    ),
    _level(
        "fsdp",
        3,
        "the planned steps ran with Megatron-FSDP in place of DDP",
        f"1 GPU, 2 to shard; {INPUTS}",
        NO_LEARNING,
        "Megatron-FSDP with one GPU shards nothing",
    ),
    _level(
        "architecture",
        4,
        "the planned steps ran with the asked feature in verl's own configuration",
        f"what the feature needs; {INPUTS}",
        NO_LEARNING,
        "the feature's results were not compared with another implementation",
    ),
    _level(
        "learning",
        5,
        "the asked metric moved in the asked direction beyond its noise, with live gradients and adapters",
        f"1 GPU; {INPUTS}; a model that solves some of the tasks at the start; 20 steps, better 50 to 100",
        ONE_SEED,
    ),
)


def variants_of(level: int, requested: tuple[str, ...]) -> tuple[Variant, ...]:
    """The requested variants of a level, and the level's default unless one of them replaces it.

    Unknown names are left out; the rules report them.
    """
    known = [item for item in VARIANTS if level in item.levels]
    variants = [item for item in known if item.name in requested]
    default = DEFAULT.get(level, "")
    replaced = {"full"} if default == "lora" else set()
    if default and not replaced & {item.name for item in variants}:
        variants = [item for item in known if item.name == default or item in variants]
    return tuple(variants)
