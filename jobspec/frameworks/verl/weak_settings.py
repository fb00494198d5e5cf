"""Settings of verl that limit what a pass proves, for specs and for the configuration that a run printed."""

from __future__ import annotations

from collections.abc import Iterator

from jobspec.frameworks.shared.weak_evidence import (
    EAGER,
    FROZEN,
    Values,
    Weakness,
    limits,
    model_limits,
    size_limits,
)
from jobspec.frameworks.verl.levels import DUMMY_LIMIT, LORA, MEGATRON

ROLLOUT = "actor_rollout_ref.rollout"
IMAGES = "data.image_key"
LORA_LIMIT = "a LoRA adapter was trained: full-parameter training is not proved"
WEAK = (
    Weakness(
        ("reward.reward_model.enable", "reward_model.enable"),
        "false",
        "the reward model was off: rewards came from a rule, and no served model is proved",
    ),
    Weakness(("USE_DUMMY_MODEL",), "true", DUMMY_LIMIT),
    Weakness((LORA,), r"[1-9]\d*", LORA_LIMIT),
    Weakness((f"{ROLLOUT}.enforce_eager",), "true", EAGER),
    Weakness(
        (f"{ROLLOUT}.name", "ENGINE"),
        "(?!vllm).+",
        "the rollout engine was {value}, not the guide's vLLM",
    ),
    Weakness(("actor_rollout_ref.actor.optim.lr",), r"0(?:\.0*)?(?:e[-+]?\d+)?", FROZEN),
    Weakness(
        ("algorithm.rollout_correction.bypass_mode",),
        "true",
        "`{key}` took the engine's log-probabilities for the trainer's: their difference is not tested",
    ),
)


def setting_limits(values: Values, given: Values, model: str, planned: bool) -> Iterator[str]:
    """What the settings leave unproved. `given` has only what somebody set: verl names image keys itself.

    Of a run that somebody else planned nobody knows the data.
    """
    yield from limits(WEAK, values)
    yield from size_limits(values, f"{MEGATRON}.")
    images = bool(given(IMAGES))
    if not images:
        shape = (
            "text-only data of GSM8K's shape"
            if planned
            else "jobspec read no setting for images, audio or video"
        )
        yield f"{shape}: other modalities are not proved"
    yield from model_limits(model, images)
