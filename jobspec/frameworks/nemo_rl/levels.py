"""NeMo-RL's coverage levels as data: which maintained script or recipe proves what.

Source: NeMo-RL at 7ea279ab (2026-08-22): `tests/functional`, `tests/test_suites`, `examples/configs`. Every
script, recipe and key is looked up again in the checkout at hand. Data plane and router replay are runtime
paths of their own, as the architectures are: both belong to level 5, `features`.
"""

from __future__ import annotations

from collections.abc import Mapping

from jobspec.frameworks.base import Level
from jobspec.frameworks.nemo_rl.variant import MetricCheck, Variant

FUNCTIONAL, CONFIGS = "tests/functional", "examples/configs"
RECIPES = f"{CONFIGS}/recipes/llm"
MEGATRON_CONFIG = f"{CONFIGS}/grpo_math_1B_megatron.yaml"
SINGLE_CONTROLLER_CONFIG = f"{CONFIGS}/grpo_math_1B_megatron_single_controller.yaml"
GRPO_STEPS = "grpo.max_num_steps"
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

_TOKEN, _KL, _LOSS, _REWARD = (
    "train/token_mult_prob_error",
    "train/gen_kl_error",
    "train/loss",
    "train/reward",
)
TOKEN = (MetricCheck("max", _TOKEN, "<", 1.05),)
RATIOS = tuple(
    MetricCheck(reduce, f"train/probs_ratio_clamped_{side}", op, limit)
    for side in ("min", "max")
    for reduce, op, limit in (("min", ">", 0.79), ("max", "<", 1.21))
)
SMOKE = (*TOKEN, *RATIOS)
LORA = (MetricCheck("max", _REWARD, ">", 0.03), MetricCheck("max", _KL, "<", 0.001))

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
ACTOR_INSTALL = "the data plane's actors may install `TransferQueue` from GitHub at their first start"
FAST = "the maintainers judge 100 steps or more of this recipe, this run has fewer"


def _sh(name: str) -> str:
    return f"{FUNCTIONAL}/{name}.sh"


def _parallel(name: str, what: str, *changed: str, proofs: tuple[str, ...]) -> Variant:
    return Variant(
        name,
        4,
        f"{what} trained",
        _sh("grpo_megatron"),
        2,
        changed,
        config=MEGATRON_CONFIG,
        steps_key=GRPO_STEPS,
        proofs=proofs,
        checks=SMOKE,
    )


def _generation(name: str, proves: str, script: str, **more: object) -> Variant:
    """Megatron as the generator. The maintainers' own suite skips these from compute capability 10.0 on."""
    fields: dict[str, object] = {"config": MEGATRON_CONFIG, "checks": TOKEN, "max_capability": "10.0"}
    fields |= more
    fields["proofs"] = ("megatron-generation", *more.get("proofs", ()))  # type: ignore[misc]
    return Variant(name, 3, proves, _sh(script), fields.pop("steps", 2), **fields)  # type: ignore[arg-type]


_CORE = (
    Variant(
        "colocated",
        0,
        "GRPO on Megatron with vLLM on the same GPUs",
        _sh("grpo_megatron"),
        2,
        config=MEGATRON_CONFIG,
        steps_key=GRPO_STEPS,
        checks=SMOKE,
    ),
    Variant(
        "mbridge-restore",
        0,
        "training from a Megatron-Bridge checkpoint, and from its Megatron-LM conversion",
        _sh("grpo_megatron_mbridge_restore"),
        2,
        config=MEGATRON_CONFIG,
        proofs=("bridge-checkpoint",),
        checks=SMOKE,
        metrics=("metrics_phase2_mbridge.json", "metrics_phase3_mlm.json"),
        model_keys=(),
    ),
)

_STATE = (
    Variant(
        "lora",
        1,
        "GRPO of a LoRA adapter, and a complete checkpoint of its last step",
        _sh("grpo_megatron_lora"),
        3,
        config=MEGATRON_CONFIG,
        checks=LORA,
        lora=True,
        saves=True,
        limitation="the saved adapter was not loaded again",
    ),
    Variant(
        "lora-async",
        1,
        "asynchronous GRPO of a LoRA adapter with vLLM on another GPU",
        _sh("grpo_megatron_lora_async"),
        3,
        config=MEGATRON_CONFIG,
        trainer="async",
        checks=LORA,
        lora=True,
    ),
    Variant(
        "sft-lora",
        1,
        "supervised fine-tuning of a LoRA adapter, and its checkpoint",
        _sh("sft_megatron_lora"),
        3,
        config=f"{CONFIGS}/sft.yaml",
        trainer="sft",
        checks=(MetricCheck("at", _LOSS, "<", 5.9, 3),),
        model="Qwen/Qwen3-0.6B",
        lora=True,
        saves=True,
        limitation="no generation and no reference policy",
    ),
    Variant(
        "dpo-lora",
        1,
        "DPO of a LoRA adapter, and its checkpoint",
        _sh("dpo_megatron_lora"),
        3,
        # The script only sets Megatron's keys: without these two, its recipe trains with DTensor.
        MEGATRON,
        config=f"{CONFIGS}/dpo.yaml",
        trainer="dpo",
        checks=(MetricCheck("at", _LOSS, "<", 0.8, 3),),
        model="Qwen/Qwen3-0.6B",
        lora=True,
        saves=True,
        limitation="no generation",
    ),
    Variant(
        "resume",
        1,
        "a Megatron run that was stopped, loaded by a new process and equal to an uninterrupted one",
        _sh("sft_resume_diamond"),
        2,
        gpus=1,
        config=f"{CONFIGS}/sft.yaml",
        trainer="sft",
        proofs=("resume-saved", "resume-loaded", "resume-step", "resume-equal"),
        metrics=("mcore_1step.json", "mcore_2step.json"),
        model="Qwen/Qwen3-0.6B",
        resumes=True,
        own_checkpoint_dir=True,
        leftovers=("results/sft/step_*",),
        limitation="the resume is of supervised fine-tuning on one GPU, not of GRPO",
    ),
    Variant(
        "async-checkpoint",
        1,
        "asynchronous GRPO on Megatron that saved its replay buffer and went on from it",
        _sh("grpo_async_replay_buffer_checkpoint"),
        4,
        MEGATRON,
        config=f"{CONFIGS}/grpo_math_1B.yaml",
        trainer="async",
        proofs=("replay-buffer", "replay-restored", "resume-bridge"),
        metrics=(),
        model="Qwen/Qwen3-0.6B",
        saves=True,
        resumes=True,
        own_checkpoint_dir=True,
        limitation="the maintainers run this script with DTensor; its metrics are not logged, only greps decide",
    ),
    Variant(
        "single-controller-checkpoint",
        1,
        "the single controller on Megatron saved, and a new process went on to step 4",
        _sh("grpo_checkpoint_single_controller"),
        4,
        config=SINGLE_CONTROLLER_CONFIG,
        trainer="single_controller",
        proofs=("dataloader-restored", "replay-buffer", "resume-bridge"),
        metrics=(),
        model="Qwen/Qwen3-0.6B",
        network=ACTOR_INSTALL,
        saves=True,
        resumes=True,
        own_checkpoint_dir=True,
        limitation="its metrics are not logged, only greps decide",
    ),
)

_REFIT = (
    Variant(
        "non-colocated",
        2,
        "weights exported by the Bridge reached vLLM on another GPU",
        _sh("grpo_megatron"),
        2,
        NON_COLOCATED,
        config=MEGATRON_CONFIG,
        steps_key=GRPO_STEPS,
        proofs=("non-colocated",),
        checks=SMOKE,
    ),
    Variant(
        "reshard",
        2,
        "weights reached vLLM on another GPU by the resharding transport of NCCL",
        _sh("grpo_nccl_reshard_refit"),
        2,
        config=MEGATRON_CONFIG,
        proofs=("non-colocated", "reshard-transport"),
        checks=TOKEN,
        model="Qwen/Qwen3-0.6B",
    ),
    Variant(
        "delta",
        2,
        "compressed differences of the weights reached vLLM on other nodes",
        "examples/run_grpo.py",
        50,
        config=f"{RECIPES}/grpo-qwen3-30ba3b-4n8g-megatron-zmq-deltaweight-noncolocated.yaml",
        nodes=4,
        gpus=8,
        steps_key=GRPO_STEPS,
        proofs=("non-colocated", "delta-transport"),
        checks=(
            MetricCheck("median", _TOKEN, "<", 1.03),
            MetricCheck("ratio_above", _TOKEN, "<", 0.05, 1.03),
            MetricCheck("min", "refit/transfer/payloads", ">", 0),
            MetricCheck("min", "refit/transfer/relay_flush_s", ">", 0),
            MetricCheck("min", "refit/delta/changed_pct", ">", 0),
            MetricCheck("max", "refit/delta/changed_pct", "<=", 5),
        ),
        model="Qwen/Qwen3-30B-A3B",
    ),
)

_GENERATION = (
    _generation("megatron-generation", "Megatron generated the completions", "grpo_megatron_generation"),
    _generation(
        "no-graphs",
        "Megatron generated the completions without CUDA graphs",
        "grpo_megatron_generation",
        overrides=(
            "policy.generation.mcore_generation_config.num_cuda_graphs=null",
            "policy.generation.mcore_generation_config.use_cuda_graphs_for_non_decode_steps=false",
        ),
        limitation="CUDA graphs were off: a pass with less optimisation, no pass of the default",
    ),
    _generation(
        "generation-non-colocated",
        "Megatron generated on another GPU, with weights sent by NCCL",
        "grpo_megatron_generation_non_colocated",
        proofs=("non-colocated",),
    ),
    _generation(
        "generation-reshard",
        "a second Megatron model with other sizes generated on the trainer's GPUs",
        "grpo_megatron_generation_colocated_reshard",
        proofs=("inference-model",),
        model="Qwen/Qwen3-0.6B",
    ),
    _generation(
        "generation-topology",
        "GPUs were chosen by NVLink domain",
        "grpo_megatron_generation_topology",
        proofs=("topology",),
        owns_ray=True,
        limitation="the NVLink domain is synthetic: nothing is proved about a real one",
    ),
    _generation(
        "generation-sampling",
        "Megatron sampled with temperature, top-p and top-k",
        "grpo_megatron_generation_topp_topk",
        checks=(MetricCheck("max", _TOKEN, "<", 1.06),),
    ),
    _generation(
        "generation-async",
        "asynchronous GRPO with Megatron generating on the trainer's GPUs, validation and a checkpoint",
        "grpo_megatron_generation_colocated_async_grpo",
        steps=3,
        trainer="async",
        proofs=("deferred-wake",),
        checks=(
            MetricCheck("median", _KL, "<", 1.3),
            MetricCheck("has", _LOSS, argument=3),
            MetricCheck("has", "validation/accuracy", argument=3),
        ),
        own_checkpoint_dir=True,
        limitation="the script removes its checkpoint: no save is proved",
    ),
)

_PARALLEL = (
    _parallel(
        "tp2",
        "tensor parallelism of 2",
        "policy.megatron_cfg.tensor_model_parallel_size=2",
        proofs=("tensor-parallel",),
    ),
    _parallel(
        "tp2-sp",
        "tensor parallelism of 2 with sequence parallelism",
        "policy.megatron_cfg.tensor_model_parallel_size=2",
        "policy.megatron_cfg.sequence_parallel=true",
        proofs=("tensor-parallel", "sequence-parallel"),
    ),
    _parallel(
        "pp2",
        "pipeline parallelism of 2",
        "policy.megatron_cfg.pipeline_model_parallel_size=2",
        proofs=("pipeline-parallel",),
    ),
    _parallel(
        "cp2",
        "context parallelism of 2 with packed sequences",
        "policy.megatron_cfg.context_parallel_size=2",
        # NeMo-RL packs only sequences whose length divides by 2 * cp.
        "policy.make_sequence_length_divisible_by=4",
        "policy.sequence_packing.enabled=true",
        proofs=("context-parallel",),
    ),
    Variant(
        "distillation",
        4,
        "distillation with context parallelism in the student and tensor parallelism in the teacher",
        _sh("distillation_megatron"),
        3,
        config=f"{CONFIGS}/distillation_math_megatron.yaml",
        trainer="distillation",
        proofs=("context-parallel",),
        checks=(MetricCheck("at", _LOSS, "<", 1.0, 3),),
        model="Qwen/Qwen3-0.6B-Base",
        saves=True,
    ),
    Variant(
        "ep",
        4,
        "a mixture of experts with tp 2, pp 2, cp 2 and ep 8",
        "examples/run_grpo.py",
        3,
        config=f"{RECIPES}/grpo-nanov3-30BA3B-2n8g-megatron-pack-cp.yaml",
        nodes=2,
        gpus=8,
        steps_key=GRPO_STEPS,
        proofs=("expert-parallel", "tensor-parallel", "pipeline-parallel", "context-parallel"),
        checks=(
            MetricCheck("median", _TOKEN, "<", 1.1),
            MetricCheck("mean", _KL, "<", 0.02),
        ),
        model="nvidia/NVIDIA-Nemotron-3-Nano-30B-A3B-Base-BF16",
    ),
    Variant(
        "ep16",
        4,
        "a mixture of experts with tp 2, cp 2 and ep 16",
        "examples/run_grpo.py",
        20,
        config=f"{RECIPES}/grpo-qwen3.5-35ba3b-2n8g-megatron-ep16tp2cp2.yaml",
        nodes=2,
        gpus=8,
        steps_key=GRPO_STEPS,
        proofs=("expert-parallel", "tensor-parallel", "context-parallel"),
        checks=(MetricCheck("mean", _KL, "<", 0.002), MetricCheck("max", _REWARD, ">", 0.5)),
        model="Qwen/Qwen3.5-35B-A3B-Base",
    ),
)

_FEATURES = (
    Variant(
        "vlm",
        5,
        "GRPO of a vision-language model on Megatron, with images",
        "examples/run_vlm_grpo.py",
        5,
        (
            "grpo.num_prompts_per_step=2",
            "grpo.num_generations_per_prompt=4",
            "policy.train_global_batch_size=4",
            "policy.train_micro_batch_size=1",
        ),
        config=f"{CONFIGS}/vlm_grpo_3B_megatron.yaml",
        steps_key=GRPO_STEPS,
        trainer="vlm",
        checks=(*TOKEN, MetricCheck("median", _TOKEN, "<", 1.05)),
        model="Qwen/Qwen2.5-VL-3B-Instruct",
    ),
    Variant(
        "audio",
        5,
        "GRPO of an audio-language model on Megatron, with sound",
        _sh("audio_grpo_megatron"),
        2,
        config=f"{CONFIGS}/audio_grpo_3B_megatron.yaml",
        trainer="vlm",
        checks=(*TOKEN, MetricCheck("mean", _TOKEN, "<", 1.05)),
        model="Qwen/Qwen2.5-Omni-3B",
        network="`tools/install_audio_deps.sh` installs system packages",
    ),
    Variant(
        "draft",
        5,
        "an Eagle-3 draft model was trained beside the policy and used by vLLM",
        _sh("grpo_megatron_eagle3_online"),
        2,
        config=f"{RECIPES}/grpo-qwen3-1.7b-1n4g-megatron-eagle3.yaml",
        proofs=("draft-loss", "draft-refit"),
        checks=(MetricCheck("min", "train/draft_loss", ">", 0),),
        model="Qwen/Qwen3-1.7B",
    ),
    Variant(
        "quant-rollout",
        5,
        "vLLM generated with ModelOpt's real W4A16 and fake W4A8 quantisation of the policy's weights",
        _sh("modelopt_quant_rollout"),
        1,
        config="examples/modelopt/qa_grpo_math_megatron.yaml",
        proofs=("quant-real", "quant-fake"),
        checks=(
            MetricCheck("at", _KL, "<", 0.003, 1, "w4a16_real_quant/metrics.json"),
            MetricCheck("max", _TOKEN, "<", 1.05, file="w4a16_real_quant/metrics.json"),
            MetricCheck("at", _KL, "<", 0.02, 1, "w4a8_fake_quant/metrics.json"),
            MetricCheck("max", _TOKEN, "<", 1.15, file="w4a8_fake_quant/metrics.json"),
        ),
        metrics=("w4a16_real_quant/metrics.json", "w4a8_fake_quant/metrics.json"),
    ),
    Variant(
        "qa-distillation",
        5,
        "quantisation-aware distillation, its checkpoint, and the export to Hugging Face",
        _sh("qa_distillation_megatron"),
        1,
        config="examples/modelopt/qa_distillation_math_megatron.yaml",
        trainer="distillation",
        proofs=("quant-export",),
        checks=(MetricCheck("at", _LOSS, ">", 0, 1),),
        model="Qwen/Qwen3-0.6B",
        model_keys=(),
        # The script looks for the checkpoint in this folder, whatever the arguments say.
        own_checkpoint_dir=True,
        leftovers=("/tmp/qa_distillation_checkpoints/step_*",),  # noqa: S108 - the script's own folder
    ),
    Variant(
        "fp8-rollout",
        5,
        "vLLM generated in FP8 from weights trained in BF16",
        "examples/run_grpo.py",
        20,
        config=f"{RECIPES}/grpo-llama3.1-8b-instruct-1n8g-megatron-fp8-rollouts.v3.yaml",
        gpus=8,
        steps_key=GRPO_STEPS,
        proofs=("fp8-rollout",),
        checks=(
            MetricCheck("median", _TOKEN, "<", 1.1),
            MetricCheck("ratio_above", _TOKEN, "<", 0.1, 1.1),
        ),
        model="meta-llama/Llama-3.1-8B-Instruct",
        limitation=FAST,
    ),
    Variant(
        "fp8",
        5,
        "Megatron trained and vLLM generated in FP8",
        "examples/run_grpo.py",
        20,
        config=f"{RECIPES}/grpo-llama3.1-8b-instruct-2n8g-megatron-fp8-e2e.yaml",
        nodes=2,
        gpus=8,
        steps_key=GRPO_STEPS,
        proofs=("fp8-training", "fp8-rollout"),
        checks=(MetricCheck("median", _TOKEN, "<", 1.1),),
        model="meta-llama/Llama-3.1-8B-Instruct",
        limitation=FAST,
    ),
    Variant(
        "data-plane-simple",
        5,
        "GRPO on Megatron whose samples went through TransferQueue's own storage",
        _sh("grpo_megatron"),
        2,
        (*DATA_PLANE, "data_plane.backend=simple"),
        config=MEGATRON_CONFIG,
        steps_key=GRPO_STEPS,
        trainer="transfer_queue",
        proofs=("data-plane-simple",),
        checks=SMOKE,
        network=ACTOR_INSTALL,
        limitation="one node: no transfer between nodes is proved",
    ),
    Variant(
        "data-plane-mooncake-cpu",
        5,
        "GRPO on Megatron whose samples went through Mooncake's store in host memory",
        _sh("grpo_megatron"),
        2,
        (*DATA_PLANE, "data_plane.backend=mooncake_cpu"),
        config=MEGATRON_CONFIG,
        steps_key=GRPO_STEPS,
        trainer="transfer_queue",
        proofs=("data-plane-mooncake",),
        checks=SMOKE,
        network=ACTOR_INSTALL,
        limitation="one node: no transfer between nodes is proved",
    ),
    Variant(
        "data-plane-single-controller",
        5,
        "the single controller on Megatron, with packed sequences through TransferQueue",
        _sh("grpo_dp_single_controller"),
        2,
        config=SINGLE_CONTROLLER_CONFIG,
        trainer="single_controller",
        proofs=("data-plane-simple",),
        checks=(
            MetricCheck("max", "train/num_masked_seqs_by_logprob_error", "==", 0),
            MetricCheck("max", "train/max_seq_mult_prob_error", "<", 1000),
            MetricCheck("max", _KL, "<", 0.002),
            *RATIOS,
        ),
        model="Qwen/Qwen3-0.6B",
        network=ACTOR_INSTALL,
    ),
    Variant(
        "r3",
        5,
        "a mixture of experts trained with the experts that vLLM had chosen, under tp 4, pp 2, cp 2 and ep 4",
        "examples/run_grpo.py",
        10,
        config=f"{RECIPES}/grpo-qwen3-30ba3b-8n8g-megatron-cp2-r3.yaml",
        nodes=8,
        gpus=8,
        steps_key=GRPO_STEPS,
        proofs=("router-replay",),
        checks=(MetricCheck("median", _TOKEN, "<", 1.02),),
        model="Qwen/Qwen3-30B-A3B",
        env=(("NRL_ROUTER_REPLAY_VALIDATE", "1"),),
        limitation="log-probabilities of the reference policy are not replayed, by design",
    ),
    Variant(
        "r3-data-plane",
        5,
        "router replay whose routes went through TransferQueue",
        "examples/run_grpo.py",
        10,
        (*DATA_PLANE[1:], "data_plane.enabled=true", "data_plane.backend=simple"),
        config=f"{RECIPES}/grpo-qwen3-30ba3b-8n8g-megatron-cp2-r3-tq_simple.yaml",
        nodes=8,
        gpus=8,
        steps_key=GRPO_STEPS,
        trainer="transfer_queue",
        proofs=("router-replay", "data-plane-simple"),
        checks=(MetricCheck("median", _TOKEN, "<", 1.02),),
        model="Qwen/Qwen3-30B-A3B",
        env=(("NRL_ROUTER_REPLAY_VALIDATE", "1"),),
        network=ACTOR_INSTALL,
        limitation="log-probabilities of the reference policy are not replayed, by design",
    ),
)

_LEARNING = (
    Variant(
        "lora-learning",
        6,
        "the reward's trend while a LoRA adapter trained",
        _sh("grpo_megatron_lora"),
        20,
        ("data.shuffle=false", "checkpointing.enabled=false"),
        config=MEGATRON_CONFIG,
        steps_key=GRPO_STEPS,
        checks=LORA,
        lora=True,
        learning=True,
    ),
    Variant(
        "full-learning",
        6,
        "the reward's trend while all weights trained",
        _sh("grpo_megatron"),
        20,
        (
            "grpo.num_prompts_per_step=8",
            "policy.train_global_batch_size=32",
            "policy.logprob_batch_size=32",
            "data.shuffle=false",
        ),
        config=MEGATRON_CONFIG,
        steps_key=GRPO_STEPS,
        checks=SMOKE,
        learning=True,
        limitation="the batch is that of the LoRA test; the maintainers have no such test",
    ),
)

VARIANTS = (*_CORE, *_STATE, *_REFIT, *_GENERATION, *_PARALLEL, *_FEATURES, *_LEARNING)
BY_NAME: Mapping[str, Variant] = {item.name: item for item in VARIANTS}

NO_LEARNING = "nothing is proved about learning"
SMALL = "the small models of the tests stand for no other size"


def _level(name: str, number: int, proves: str, *not_proved: str) -> Level:
    names = tuple(item.name for item in VARIANTS if item.level == number)
    return Level(name, number, proves, not_proved, names)


LEVELS = (
    _level(
        "smoke",
        0,
        "GRPO steps ran on Megatron with a fresh import from Hugging Face weights",
        NO_LEARNING,
        SMALL,
        "checkpoints are off, parallel sizes are 1, text only",
    ),
    _level(
        "lora",
        1,
        "the chosen script trained a LoRA adapter on Megatron, or saved and resumed",
        NO_LEARNING,
        SMALL,
        "only `resume`, `async-checkpoint` and `single-controller-checkpoint` load what was saved",
    ),
    _level("refit", 2, "weights moved from Megatron to a generator on other GPUs", NO_LEARNING),
    _level("generation", 3, "Megatron generated the completions that it trained on", NO_LEARNING, SMALL),
    _level(
        "parallel",
        4,
        "the chosen parallel sizes trained",
        NO_LEARNING,
        "only `ep` and `ep16` use expert parallelism and several nodes",
    ),
    _level("features", 5, "the chosen architecture or runtime path was really used", NO_LEARNING),
    _level("learning", 6, "the asked metric moved in the asked direction beyond its noise", "one seed"),
)


def variants_of(level: int, asked: tuple[str, ...]) -> tuple[Variant, ...]:
    """The asked variants of a level, without any its first; unknown names are left out."""
    known = [item for item in VARIANTS if item.level == level]
    return tuple(item for item in known if item.name in asked) if asked else tuple(known[:1])
