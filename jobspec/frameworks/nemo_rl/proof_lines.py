"""Lines that only the real thing prints, and what each proves. Data only.

Every pattern was compared with the statement that prints it. A pattern sees a line without colours and line
end, but with Ray's prefix, since the actor that prints is part of some proofs.
Source: NeMo-RL at 7ea279ab (2026-08-22), Megatron-Bridge at 067f987d.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from jobspec.frameworks.shared.unmapped_weights import UNMAPPED, UNMAPPED_HINTS
from jobspec.frameworks.shared.weak_evidence import RANK_COUNT


@dataclass(frozen=True)
class Proof:
    """One kind of line. `shows` completes "jobspec found no line that shows …".

    Every such line holds one of `hints`, and only lines with a hint are searched. A `forbidden` line proves
    the opposite: the log must not hold it.
    """

    name: str
    shows: str
    hints: tuple[str, ...]
    pattern: re.Pattern[str]
    forbidden: bool = False


def _proof(name: str, shows: str, pattern: str, *hints: str, forbidden: bool = False) -> Proof:
    return Proof(name, shows, hints, re.compile(pattern), forbidden)


def _configured(section: str, key: str, value: str, override: str) -> str:
    """A pattern for a value of `section` in the printed configuration, or for an override of it.

    The configuration is one line of nested sections; `enabled` comes first in the sections used here.
    """
    within = rf"'{section}': \{{(?:(?!'{section}': ).)*?'{key}': {value}\b"
    return within + "|" + _override(f"{re.escape(override)}={value}")


def _override(argument: str) -> str:
    """A pattern for an argument that reached the trainer; a traced command line proves nothing."""
    return rf"^(?:\[[^\]]*\] )?Overrides: \[.*{argument}\b"


SIZES = "policy.megatron_cfg."
LARGE = r"(?:[2-9]|[1-9]\d+)"


def _size(name: str, key: str, shows: str) -> Proof:
    return _proof(name, shows, _configured("megatron_cfg", key, LARGE, SIZES + key), key)


CONFIG_HINT, OVERRIDES_HINT = "megatron_cfg': {", "Overrides: ["
SAVED = r"successfully saved checkpoint from iteration\s+\d+ to (\S*?)/?(?:tmp_)?step_(\d+)/policy/weights"
LOADED = r"successfully loaded checkpoint from (\S*?)/?step_(\d+)/policy/weights"


def _of_step_1(pattern: str) -> str:
    return pattern.replace("step_(\\d+)", "step_1")


SAVED_HINT, LOADED_HINT = "successfully saved checkpoint", "successfully loaded checkpoint"

# Searched in every log.
GENERAL = (
    _proof(
        "trainer",
        "the trainer's start",
        r"Running (?:synchronous|async) GRPO training(?: \((?:legacy|TransferQueue)\))?|"
        r"Launching SingleControllerActor",
        "GRPO training",
        "Launching SingleControllerActor",
    ),
    _proof(
        "built",
        "a model that Megatron built",
        r"^(?!.*\(DTensorPolicyWorker).*(?:Model, optimizer, and learning rate scheduler built|"
        rf"{RANK_COUNT})",
        "learning rate scheduler built",
        "> number of parameters on (tensor",
    ),
    _proof(
        "started",
        "the start of Megatron",
        r"Using default megatron checkpoint dir: |time to initialize megatron \(seconds\)",
        "Using default megatron checkpoint dir",
        "time to initialize megatron",
    ),
    _proof(
        "dtensor", "a DTensor worker", r"^(?:\[[^\]]*\] )?\(DTensorPolicyWorker\w*\b", "(DTensorPolicyWorker"
    ),
    _proof("megatron-off", "Megatron switched off", r"'megatron_cfg': \{'enabled': False", CONFIG_HINT),
    _proof("megatron-on", "Megatron switched on", r"'megatron_cfg': \{'enabled': True", CONFIG_HINT),
    _proof(
        "conversion",
        "the folder of converted weights",
        r"Using default megatron checkpoint dir: (\S+)",
        "Using default megatron checkpoint dir",
    ),
    _proof(  # Megatron-Bridge saves what it imports as iteration 0; the trainer saves in a step's folder
        "imported",
        "a save of imported weights",
        r"successfully saved checkpoint from iteration\s+0 to (?!\S*step_\d+/)(\S+)",
        "successfully saved checkpoint",
    ),
    _proof(
        "skipped-import",
        "a skipped import",
        r"Checkpoint already exists at (\S+)\. Skipping import",
        "Skipping import",
    ),
    _proof(
        "launch",
        "the start of a process",
        r"^(?:\[[^\]]*\] )?Loaded configuration from: ",
        "Loaded configuration from",
    ),
    _proof("header", "the start of a train step", r"=+ Step (\d+)/(\d+) =+", "= Step "),
    _proof(
        "step", "a completed train step", r"Logged data to \S*train_data_step(\d+)\.jsonl", "train_data_step"
    ),
    _proof("sc-step", "a completed train step", r"(?:^|\) )train step (\d+)/(\d+)  trainer_v=", "trainer_v="),
    _proof(
        "saving",
        "the start of a save",
        r"Saving checkpoint for step (\d+)\.\.\.",
        "Saving checkpoint for step",
    ),
    _proof("saved", "a finished save by Megatron-Bridge", SAVED, SAVED_HINT),
    _proof("loaded", "a load by Megatron-Bridge", LOADED, LOADED_HINT),
    _proof(
        "complete",
        "a complete checkpoint",
        r"^jobspec: complete checkpoint (\S*)/step_(\d+)$",
        "jobspec: complete checkpoint",
    ),
    _proof(
        "unfinished",
        "an unfinished checkpoint",
        r"^jobspec: unfinished checkpoint \S*/tmp_step_(\d+)$",
        "jobspec: unfinished checkpoint",
    ),
    _proof("skipped", "a skipped script", r"^jobspec: skipped: (.*)", "jobspec: skipped: "),
    _proof(
        "not-a-number",
        "a value that is no number",
        r"• (?:Loss|Draft Loss|Generation KL Error|Avg Reward): (nan|-?inf)\b",
        ": nan",
        ": inf",
        ": -inf",
    ),
    _proof(
        "check",
        "the script's own metric checks",
        r"[│|]\s*(PASS|FAIL)\s*[│|]\s*(.*?)\s*[│|]",  # a terminal without UTF-8 gets ASCII frames
        "│",
        "| PASS",
        "| FAIL",
    ),
    _proof(
        "adapter",
        "a LoRA adapter with parameters to train",
        r"Trainable parameters: ([\d,]+)",
        "Trainable parameters: ",
    ),
    _proof(
        "lora-on",
        "LoRA switched on",
        _configured("peft", "enabled", "True", SIZES + "peft.enabled")
        + "|"
        + _override(r"peft\.enabled=true"),
        "'peft': {",
        "peft.enabled=true",
    ),
    _proof("trace", "the trace of routes", r"^Trace dir: ", "Trace dir: "),
    _proof(
        "trace-passed",
        "a trace of routes that was checked",
        r"^PASS: producer routed_experts matched TQ fetches",
        "routed_experts matched",
    ),
    _proof("fallback", "tokens without a route", r"R3 router replay fallback: ", "R3 router replay fallback"),
    _proof(
        "configuration",
        "the whole configuration",
        r"^(?:\[[^\]]*\] )?(MasterConfig\(.*\)|\{'policy': .*\}|\{.*'megatron_cfg': \{.*\})\s*$",
        CONFIG_HINT,
    ),
    Proof("unmapped", "weights without a mapping", UNMAPPED_HINTS, UNMAPPED),
    _proof(
        "guard-off",
        "NeMo-RL's check for tensor parallelism switched off",
        r"NRL_IGNORE_TP_ACCURACY_CHECK['\"]?\s*[=:]\s*['\"]?\w",
        "NRL_IGNORE_TP_ACCURACY_CHECK",
    ),
    _proof("overrides", "the overrides", r"^(?:\[[^\]]*\] )?Overrides: \[(.*)\]", OVERRIDES_HINT),
)

# Searched for the variants that name them in `proofs`.
OF_VARIANTS = (
    _proof(
        "bridge-checkpoint",
        "the restore from a Megatron-Bridge checkpoint",
        r"'pretrained_checkpoint': \{[^}]*'format': 'megatron_bridge'|"
        r"Phase 2: restore from megatron-bridge",
        "pretrained_checkpoint",
        "Phase 2: restore",
    ),
    _proof(
        "resume-saved", "a save of step 1 by Megatron", r"^\[mcore 1step\] .*" + _of_step_1(SAVED), SAVED_HINT
    ),
    _proof("resume-loaded", "a load of that save", r"^\[mcore 2step\] .*" + _of_step_1(LOADED), LOADED_HINT),
    _proof("resume-step", "a step after the load", r"^\[mcore 2step\] =+ Step 2/2 =+", "= Step "),
    _proof(
        "resume-equal",
        "the script's comparison with the uninterrupted run",
        r"^✓ train/loss 2 is equal",
        "is equal",
    ),
    _proof("resume-bridge", "a load by Megatron-Bridge", LOADED, LOADED_HINT),
    _proof(
        "replay-buffer",
        "a load of the replay buffer",
        r"Restoring replay buffer from checkpoint",
        "Restoring replay buffer",
    ),
    _proof(
        "replay-restored",
        "the restored replay buffer",
        r"ReplayBuffer restored: \d+ trajectories",
        "ReplayBuffer restored",
    ),
    _proof(
        "dataloader-restored",
        "the restored data loader",
        r"Restoring dataloader state from checkpoint",
        "Restoring dataloader state",
    ),
    _proof(
        "non-colocated",
        "a generator on GPUs of its own",
        r"Ray inference cluster initialized with \d+ nodes|"
        + _configured("colocated", "enabled", "False", "policy.generation.colocated.enabled")
        + "|"
        + _override(r"colocated\.enabled=false"),
        "Ray inference cluster initialized",
        "'colocated': {",
        "colocated.enabled=false",
    ),
    _proof(
        "reshard-transport",
        "the resharding transport",
        r"'refit_transport': 'nccl_reshard'|nccl_reshard bulk comm group|"
        + _override("refit_transport=nccl_reshard"),
        "nccl_reshard",
    ),
    _proof(
        "delta-transport",
        "the transport of compressed differences",
        r"'refit_transport': 'vllm_(?:zmq|s3)_sparse'|"
        + _override(r"refit_transport=vllm_(?:zmq|s3)_sparse"),
        "_sparse",
    ),
    _proof(
        "megatron-generation",
        "Megatron as the generator",
        r"Using megatron backend for generation with ",
        "backend for generation with",
    ),
    _proof(
        "inference-model",
        "the second model for inference",
        r"\[colocated-reshard\] building dedicated inference model",
        "[colocated-reshard]",
    ),
    _proof(
        "topology",
        "GPUs chosen by NVLink domain",
        r"Topology-aware allocation: \d+ nodes?\b|"
        r"Topology-aware allocation: \d+ \w+ nodes",
        "Topology-aware allocation",
    ),
    _proof(
        "deferred-wake",
        "the generator kept asleep while the checkpoint was written",
        r"Keeping colocated engine asleep for checkpointing",
        "Keeping colocated engine asleep",
    ),
    _size("tensor-parallel", "tensor_model_parallel_size", "a tensor parallel size above 1"),
    _size("pipeline-parallel", "pipeline_model_parallel_size", "a pipeline parallel size above 1"),
    _size("context-parallel", "context_parallel_size", "a context parallel size above 1"),
    _size("expert-parallel", "expert_model_parallel_size", "an expert parallel size above 1"),
    _proof(
        "sequence-parallel",
        "sequence parallelism",
        r"'sequence_parallel': True|" + _override("sequence_parallel=true"),
        "sequence_parallel",
    ),
    _proof(
        "parallel-sizes",
        "the parallel sizes that were asked for",
        r"^Overrides: \[.*megatron_cfg\."
        r"(?:tensor_model|pipeline_model|context|expert_model)_parallel_size=\d",
        OVERRIDES_HINT,
    ),
    _proof("draft-loss", "the draft model's loss", r"Draft Loss: (?:\d|nan|inf)", "Draft Loss: "),
    _proof(
        "draft-refit",
        "a generator without the trained draft model",
        r"Speculative decoding is enabled without draft refit sync",
        "without draft refit sync",
        forbidden=True,
    ),
    _proof(
        "quant-real",
        "a checkpoint in real quantisation",
        r"Detected ModelOpt NVFP4 checkpoint",
        "Detected ModelOpt NVFP4",
    ),
    _proof(
        "quant-fake",
        "inserted quantizers",
        r"VllmQuantGenerationWorker.*Inserted [1-9]\d* quantizers",
        "quantizers",
    ),
    _proof(
        "quant-export",
        "the export of the quantised checkpoint",
        r"\[PASS\] qa-distillation \+ export functional test",
        "qa-distillation + export",
    ),
    _proof(
        "fp8-rollout",
        "FP8 of the generator",
        r"'vllm_cfg': \{(?:(?!'vllm_cfg': ).)*?'precision': 'fp8'|" + _override(r"vllm_cfg\.precision=fp8"),
        "'vllm_cfg': {",
        "vllm_cfg.precision=",
    ),
    _proof(
        "fp8-training",
        "FP8 of the trainer",
        r"'fp8_cfg': \{'enabled': True|" + _override(r"fp8_cfg\.enabled=true"),
        "fp8_cfg",
    ),
    _proof(
        "data-plane-simple",
        "TransferQueue's own storage",
        r"data_plane'?[=:] ?\{'enabled': True[^}]*'backend': 'simple'|"
        + _override(r"data_plane\.backend=simple"),
        "data_plane",
    ),
    _proof(
        "data-plane-mooncake",
        "Mooncake's store",
        r"data_plane'?[=:] ?\{'enabled': True[^}]*'backend': 'mooncake_cpu'|"
        r"" + _override(r"data_plane\.backend=mooncake_cpu"),
        "data_plane",
    ),
    _proof(
        "router-replay",
        "router replay switched on",
        r"'router_replay': \{'enabled': True|" + _override(r"router_replay\.enabled=true"),
        "router_replay",
    ),
)

SIZE_KEYS: Mapping[str, str] = {
    "tensor-parallel": "tensor_model_parallel_size",
    "pipeline-parallel": "pipeline_model_parallel_size",
    "context-parallel": "context_parallel_size",
    "expert-parallel": "expert_model_parallel_size",
}
"""Keys of `policy.megatron_cfg` for sizes above 1; a checkpoint has them, and distillation prints none."""

PROOFS: Mapping[str, Proof] = {proof.name: proof for proof in (*GENERAL, *OF_VARIANTS)}
TRAINERS: Mapping[str, re.Pattern[str]] = {
    "sync": re.compile(r"Running synchronous GRPO training(?! \(TransferQueue\))"),
    "async": re.compile(r"Running async GRPO training"),
    "transfer_queue": re.compile(r"Running synchronous GRPO training \(TransferQueue\)"),
    "single_controller": re.compile(r"Launching SingleControllerActor"),
    "vlm": re.compile(r"Running (?:synchronous|async) GRPO training"),
}
"""The start line of each trainer that prints one; SFT, DPO and distillation print none."""
