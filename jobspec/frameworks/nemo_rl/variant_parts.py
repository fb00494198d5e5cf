"""What the tables of variants share: paths, conditions of the maintained scripts, sets of arguments."""

from __future__ import annotations

from jobspec.frameworks.nemo_rl.variant import MetricCheck

FUNCTIONAL, CONFIGS = "tests/functional", "examples/configs"
RECIPES = f"{CONFIGS}/recipes/llm"
MEGATRON_CONFIG = f"{CONFIGS}/grpo_math_1B_megatron.yaml"
SINGLE_CONTROLLER_CONFIG = f"{CONFIGS}/grpo_math_1B_megatron_single_controller.yaml"
GRPO_STEPS = "grpo.max_num_steps"
TOKEN_ERROR, KL_ERROR = "train/token_mult_prob_error", "train/gen_kl_error"
LOSS, REWARD = "train/loss", "train/reward"
CLOSE = (MetricCheck("max", TOKEN_ERROR, "<", 1.05),)
RATIO_MIN, RATIO_MAX = "train/probs_ratio_clamped_min", "train/probs_ratio_clamped_max"
RATIOS = (
    MetricCheck("min", RATIO_MIN, ">", 0.79),
    MetricCheck("max", RATIO_MIN, "<", 1.21),
    MetricCheck("min", RATIO_MAX, ">", 0.79),
    MetricCheck("max", RATIO_MAX, "<", 1.21),
)
SMOKE = (*CLOSE, *RATIOS)
LORA = (MetricCheck("max", REWARD, ">", 0.03), MetricCheck("max", KL_ERROR, "<", 0.001))

MEGATRON = ("policy.dtensor_cfg.enabled=false", "policy.megatron_cfg.enabled=true")
NON_COLOCATED = (
    "policy.generation.colocated.enabled=false",
    "policy.generation.colocated.resources.gpus_per_node=1",
    "policy.generation.vllm_cfg.async_engine=true",
)
DATA_PLANE = (
    "data_plane.enabled=true",
    "data_plane.impl=transfer_queue",
    "data_plane.storage_capacity=1000000",
    "data_plane.num_storage_units=2",
    "data_plane.claim_meta_poll_interval_s=0.5",
    # The default is 512 GiB and 64 GiB, mapped lazily; these are the functional test's.
    "data_plane.global_segment_size=4294967296",
    "data_plane.local_buffer_size=1073741824",
)
FAST = "the maintainers judge 100 steps or more of this recipe, this run has fewer"


def sh(name: str) -> str:
    return f"{FUNCTIONAL}/{name}.sh"
