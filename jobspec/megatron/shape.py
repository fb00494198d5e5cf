"""`TrainShape`: how a framework lays a Megatron run out over GPUs, in Megatron-Core's own words.

An adapter sets it in `FrameworkPlan.shape` and leaves out what it does not know; no rule judges a missing
field. Standard library only.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

# Where a field of the shape usually stands in a spec; an adapter's `keys` win.
SPEC_KEYS: Mapping[str, str] = {
    **{name: f"train.parallel.{name}" for name in ("tp", "pp", "ep", "etp", "cp", "vpp")},
    **{f"rollout.{name}": f"train.rollout.{name}" for name in ("engines", "tp", "pp", "ep")},
    "nodes": "resources.nodes",
    "gpus_per_node": "resources.gpus_per_node",
}


@dataclass(frozen=True)
class RolloutShape:
    """The engines that generate.

    `colocated` engines take turns with the trainer on its GPUs. Separate engines have `nodes` of their own;
    with 0 nodes, the framework's own rules count their GPUs.

    `memory_fraction` is the share of a GPU that an awake engine takes (vLLM's `gpu_memory_utilization`).
    `stays`: a colocated engine keeps its weights on the GPU while the trainer works, as without sleep mode.
    `precision` is that of its weights; "" means not known, and no rule checks it.
    `executor` is vLLM's; `mp` keeps an engine inside a node.
    """

    engines: int | None = None
    tp: int = 1
    pp: int = 1
    ep: int = 1
    dp: int = 1
    colocated: bool = True
    nodes: int = 0
    memory_fraction: float | None = None
    stays: bool = False
    executor: Literal["", "mp", "ray"] = ""
    precision: Literal["", "bf16", "fp8", "fp4"] = ""

    @property
    def gpus_per_engine(self) -> int:
        return self.tp * self.pp * self.dp


@dataclass(frozen=True)
class OptimizerShape:
    """Adam with fp32 master weights, as Megatron-Core keeps it.

    `distributed` shards its state over data-parallel ranks. `precision_aware` is Transformer Engine's fused
    Adam: of a bf16 weight's master it keeps only the lower 16 bits. `moment_bytes` is the width of each
    moment. `offload` is the share of the state in host memory. `fused` False is torch's own Adam,
    which Megatron-Core falls back to without Transformer Engine and Apex.
    """

    distributed: bool = True
    precision_aware: bool = False
    moment_bytes: int = 4
    offload: float = 0.0
    fused: bool = True

    @property
    def master_bytes(self) -> int:
        """Bytes that master weights add to each bf16 or fp16 weight; an offloaded state is plain fp32."""
        return 2 if self.precision_aware and self.offload < 1 else 4


@dataclass(frozen=True)
class Recompute:
    """Activation recomputation. `layers` is Megatron's `recompute_num_layers` of `full`, per chunk (uniform)
    or per pipeline stage (block); `modules` are those of `selective`."""

    granularity: Literal["none", "selective", "full"] = "none"
    method: Literal["", "uniform", "block"] = ""
    layers: int | None = None
    modules: tuple[str, ...] = ("core_attn",)


@dataclass(frozen=True)
class TrainShape:
    """Sizes of a Megatron run. Only the first two are required.

    `nodes` are the trainer's alone: they exclude nodes that generate (`rollout.nodes`), judge or teach.
    `etp` None means Megatron's default, `tp`.
    `seq_length` is the longest sequence, prompt and answer.
    `micro_batch` counts sequences of a data-parallel rank.
    `tokens_per_microbatch` is the cap per data-parallel rank where micro-batches are packed or filled by
    tokens.
    `recompute` None means not known: the estimate takes full recomputation, which makes it a lower bound.
    `model` names the trained model where the spec's `model` does not.
    `content`: throughput harnesses fabricate sequences or batches of one repeated token: its experts get all.
    `train_batch` counts prompts of one step, `samples_per_prompt` answers to each, and `global_batch`
    samples of one optimizer step.
    `sequence_parallel` None: the framework turns it on when `tp` > 1.
    `fp32_grads`: gradients accumulate and reduce in fp32. None means not known: the estimate takes bf16.
    `param_offload`: the weights leave the GPU while engines generate.
    `logits_chunk` counts tokens whose logits exist at one time; None means all of a micro-batch.
    `fused_logprobs`: the loss never makes the whole logits.
    `async_save`: a checkpoint is copied to host memory and written from there.
    `reference`: the run keeps a second copy of the weights for the KL term.
    `critic`: the run trains a second model.
    `keys` maps a field's name (`tp`, `rollout.tp`, `global_batch`) to the key of the spec that sets it.
    """

    nodes: int
    gpus_per_node: int
    framework: str = ""
    model: str = ""
    tp: int = 1
    pp: int = 1
    cp: int = 1
    ep: int = 1
    etp: int | None = None
    vpp: int | None = None
    sequence_parallel: bool | None = None
    first_stage_layers: int | None = None
    last_stage_layers: int | None = None
    embedding_in_split: bool = False
    loss_in_split: bool = False
    pipeline_layout: str = ""
    seq_length: int | None = None
    micro_batch: int | None = None
    tokens_per_microbatch: int | None = None
    packed: bool | None = None
    content: Literal["text", "token per sequence", "token per batch"] = "text"
    train_batch: int | None = None
    samples_per_prompt: int = 1
    global_batch: int | None = None
    precision: Literal["bf16", "fp16", "fp32"] = "bf16"
    fp32_grads: bool | None = None
    optimizer: OptimizerShape = OptimizerShape()
    param_offload: bool = False
    recompute: Recompute | None = None
    attention: Literal["fused", "unfused"] = "fused"
    logits_chunk: int | None = None
    fused_logprobs: bool = False
    lora_rank: int = 0
    mtp_layers: int | None = None
    async_save: bool = False
    reference: bool = False
    critic: bool = False
    rollout: RolloutShape | None = None
    keys: Mapping[str, str] = field(default_factory=dict)

    @property
    def world(self) -> int:
        """GPUs of the trainer."""
        return self.nodes * self.gpus_per_node

    @property
    def expert_tp(self) -> int:
        return self.tp if self.etp is None else self.etp

    @property
    def dp(self) -> int:
        """Data-parallel size, rounded down where the sizes do not fit; 0 when there are too few GPUs."""
        return self.world // (self.tp * self.pp * self.cp)

    @property
    def expert_dp(self) -> int:
        """Data-parallel size of the experts: context parallelism is no factor of their grid."""
        return self.world // (self.expert_tp * self.ep * self.pp)

    @property
    def sp(self) -> bool:
        """Whether sequence parallelism is on."""
        return self.tp > 1 if self.sequence_parallel is None else self.sequence_parallel

    def key(self, name: str) -> str:
        """The spec's key of a field, for a finding's position."""
        return self.keys.get(name) or SPEC_KEYS.get(name, "train.overrides")
