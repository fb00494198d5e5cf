"""NeMo-RL's coverage levels as data: which maintained script proves what, and what it must leave behind.

Source: NeMo-RL at 7ea279ab (2026-08-22), `tests/functional`.
A variant is listed only when its evidence is judged.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from jobspec.frameworks.base import Level

SYNC, ASYNC = "synchronous", "async"
MEGATRON_CONFIG = "examples/configs/grpo_math_1B_megatron.yaml"
FINITE = (
    "train/loss",
    "train/reward",
    "train/grad_norm",
    "train/token_mult_prob_error",
    "train/gen_kl_error",
    "train/probs_ratio_clamped_min",
    "train/probs_ratio_clamped_max",
    "train/draft_loss",
)


@dataclass(frozen=True)
class Variant:
    """One maintained script of `tests/functional` with our arguments.

    `trainer` is the word in the trainer's own start line, empty where the entry point prints none.
    `config` is the recipe that override keys are looked up in, empty when the script's own is not known.
    `own_checkpoint_dir`: the script gives each of its runs a folder, one value for all would mix them.
    `lines` are what the script's log must hold beside: what is proved -> pattern.
    """

    name: str
    level: int
    script: str
    steps: int
    overrides: tuple[str, ...] = ()
    gpus: int = 2
    trainer: str = SYNC
    config: str = ""
    metrics: tuple[str, ...] = ("metrics.json",)
    table: bool = True
    own_checkpoint_dir: bool = False
    saves: bool = False
    lora: bool = False
    leftovers: str = ""
    steps_key: str = ""
    lines: tuple[tuple[str, str], ...] = ()
    limitation: str = ""

    @property
    def path(self) -> str:
        return f"tests/functional/{self.script}.sh"


NON_COLOCATED = (
    "policy.generation.colocated.enabled=false",
    "policy.generation.colocated.resources.gpus_per_node=1",
    "policy.generation.vllm_cfg.async_engine=true",
)
LOAD = r"successfully loaded checkpoint from \S*/step_1/policy/weights"


def _parallel(name: str, *changed: str) -> Variant:
    return Variant(name, 4, "grpo_megatron", 2, changed, config=MEGATRON_CONFIG)


VARIANTS = (
    Variant("colocated", 0, "grpo_megatron", 2, config=MEGATRON_CONFIG, steps_key="grpo.max_num_steps"),
    Variant("lora", 1, "grpo_megatron_lora", 3, config=MEGATRON_CONFIG, saves=True, lora=True),
    Variant("lora-async", 1, "grpo_megatron_lora_async", 3, trainer=ASYNC, config=MEGATRON_CONFIG, lora=True),
    Variant("sft-lora", 1, "sft_megatron_lora", 3, trainer="", lora=True),
    Variant("dpo-lora", 1, "dpo_megatron_lora", 3, trainer="", lora=True),
    Variant(
        "resume",
        1,
        "sft_resume_diamond",
        2,
        gpus=1,
        trainer="",
        metrics=("mcore_1step.json", "mcore_2step.json"),
        table=False,
        own_checkpoint_dir=True,
        leftovers="results/sft/step_*",
        lines=(
            ("a save of step 1 by Megatron", r"^\[mcore 1step\].*successfully saved checkpoint .*step_1/"),
            ("a load of that save", r"^\[mcore 2step\].*" + LOAD),
            ("a step after the load", r"^\[mcore 2step\].*=+ Step 2/2 =+"),
            ("the script's comparison with the baseline", r"✓ .*mcore.* is equal"),
        ),
        limitation="the resume is of supervised fine-tuning, not of GRPO",
    ),
    Variant("non-colocated", 2, "grpo_megatron", 2, NON_COLOCATED, config=MEGATRON_CONFIG),
    Variant(
        "reshard",
        2,
        "grpo_nccl_reshard_refit",
        2,
        lines=(("the reshard transport", r"refit_transport=nccl_reshard"),),
    ),
    Variant(
        "megatron-generation",
        3,
        "grpo_megatron_generation",
        2,
        config=MEGATRON_CONFIG,
        lines=(("Megatron as the generator", r"Using megatron backend for generation"),),
        limitation="compute capability 10.0 and newer is skipped by the maintainers for this test",
    ),
    _parallel("tp2", "policy.megatron_cfg.tensor_model_parallel_size=2"),
    _parallel("pp2", "policy.megatron_cfg.pipeline_model_parallel_size=2"),
    _parallel("cp2", "policy.megatron_cfg.context_parallel_size=2"),
    Variant(
        "draft",
        5,
        "grpo_megatron_eagle3_online",
        2,
        lines=(("the draft model's loss", r"Draft Loss: "),),
    ),
    Variant(
        "lora-learning",
        6,
        "grpo_megatron_lora",
        20,
        ("grpo.max_num_steps=20", "data.shuffle=false", "checkpointing.enabled=false"),
        config=MEGATRON_CONFIG,
        steps_key="grpo.max_num_steps",
        lora=True,
    ),
)

ONE_NODE = "one node of at most two GPUs: nothing is proved about several nodes"
NO_LEARNING = "nothing is proved about learning"


def _level(name: str, number: int, proves: str, *not_proved: str) -> Level:
    names = tuple(item.name for item in VARIANTS if item.level == number)
    return Level(name, number, proves, (ONE_NODE, *not_proved), names)


LEVELS = (
    _level(
        "smoke", 0, "GRPO steps ran on Megatron with a fresh import from Hugging Face weights", NO_LEARNING
    ),
    _level(
        "lora",
        1,
        "the chosen script trained a LoRA adapter on Megatron, or saved and resumed",
        NO_LEARNING,
        "only `resume` proves a resume, only `lora` a saved GRPO checkpoint",
    ),
    _level(
        "refit", 2, "weights moved from Megatron to a generator on other GPUs", NO_LEARNING, "no delta refit"
    ),
    _level("generation", 3, "Megatron generated the completions that it trained on", NO_LEARNING),
    _level("parallel", 4, "the chosen parallel degree of 2 trained", NO_LEARNING, "no expert parallelism"),
    _level(
        "features", 5, "a draft model was trained beside the policy", NO_LEARNING, "no vision, audio or FP8"
    ),
    _level("learning", 6, "the asked metric moved in the asked direction beyond its noise", "one seed"),
)
BY_NAME: Mapping[str, Variant] = {item.name: item for item in VARIANTS}


def variants_of(level: int, asked: tuple[str, ...]) -> tuple[Variant, ...]:
    """The asked variants of a level, without any its first; unknown names are left out."""
    known = [item for item in VARIANTS if item.level == level]
    return tuple(item for item in known if item.name in asked) if asked else tuple(known[:1])
