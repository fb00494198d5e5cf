"""Peak GPU memory of real Megatron-Core training steps, one row a point.

    python benchmarks/gpu/memory.py --out points.json [--only NAME,…]

Each point is a GPT model of Megatron-Core's own layers (no Transformer Engine) in bfloat16 with fp32
gradients and the distributed optimizer, trained for three steps on random tokens by one or two GPUs, in
processes of its own. Points of one GPU run side by side. Needs torch with CUDA and megatron-core.
"""

from __future__ import annotations

import argparse
import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

STEPS = 3
LIMIT_S = 150.0
MARK = "memory-point: "


@dataclass(frozen=True)
class Point:
    """One model and its layout. `experts` 0 is a dense model; `ffn` is then the MLP's, else an expert's."""

    name: str
    hidden: int = 1024
    layers: int = 12
    heads: int = 16
    kv_heads: int = 8
    ffn: int = 4096
    vocab: int = 32768
    experts: int = 0
    topk: int = 2
    seq: int = 2048
    micro_batch: int = 1
    tp: int = 1
    ep: int = 1
    gpus: int = 1
    sequence_parallel: bool = False
    recompute: str = "none"


SMALL = Point("small")
MEDIUM = Point("medium", hidden=2048, layers=24, ffn=5632)
LARGE = Point("large", hidden=4096, layers=14, heads=32, ffn=11008)
MOE = Point("moe", ffn=1408, experts=8)


def points() -> Iterator[Point]:
    """Dense and MoE, TP and EP 1 and 2, sequence parallel off and on, all three kinds of recomputation."""
    for size in (SMALL, MEDIUM, MOE):
        for recompute in ("none", "selective", "full"):
            yield replace(size, name=f"{size.name} {recompute}", recompute=recompute)
    yield replace(SMALL, name="small batch 4", micro_batch=4)
    yield replace(SMALL, name="small batch 4 full", micro_batch=4, recompute="full")
    yield replace(SMALL, name="small seq 4096 selective", seq=4096, recompute="selective")
    yield replace(MEDIUM, name="medium vocab 152k", vocab=151936, recompute="selective")
    yield replace(MEDIUM, name="medium batch 2 full", micro_batch=2, recompute="full")
    yield replace(LARGE, name="large selective", recompute="selective")
    yield replace(LARGE, name="large full", recompute="full")
    yield replace(MOE, name="moe batch 4 full", micro_batch=4, recompute="full")
    for recompute in ("none", "selective", "full"):
        for sp in (False, True):
            name = f"medium tp2 {recompute}{' sp' if sp else ''}"
            yield replace(MEDIUM, name=name, tp=2, gpus=2, sequence_parallel=sp, recompute=recompute)
        yield replace(MOE, name=f"moe ep2 {recompute}", ep=2, gpus=2, recompute=recompute)
    yield replace(MEDIUM, name="medium dp2 selective", gpus=2, recompute="selective")
    yield replace(
        LARGE, name="large tp2 selective sp", tp=2, gpus=2, sequence_parallel=True, recompute="selective"
    )
    yield replace(
        MOE, name="moe tp2 sp selective", tp=2, gpus=2, sequence_parallel=True, recompute="selective"
    )


def border() -> Iterator[Point]:
    """Points around 140 GiB, the memory of an H200: does the estimate know which of them fit?"""
    for batch in (7, 8, 9, 10):
        yield replace(MEDIUM, name=f"border medium batch {batch}", micro_batch=batch)
    for batch in (12, 14, 15, 16):
        name = f"border large selective batch {batch}"
        yield replace(LARGE, name=name, micro_batch=batch, recompute="selective")


# -- one rank ----------------------------------------------------------------------------------------


def train(point: Point) -> dict[str, Any]:
    """Train `STEPS` steps on this rank; what torch's allocator held."""
    import torch

    start_parallel(point)
    model, config = build_model(point)
    optimizer = build_optimizer(model)
    built = torch.cuda.memory_allocated()
    torch.cuda.reset_peak_memory_stats()
    try:
        losses = [step(point, model, config, optimizer) for _ in range(STEPS)]
    except torch.OutOfMemoryError:
        return {"oom": True, "peak_bytes": torch.cuda.max_memory_allocated()}
    free, total = torch.cuda.mem_get_info()
    return {
        "parameters": sum(item.numel() for item in model.parameters()),
        "built_bytes": built,
        "between_steps_bytes": torch.cuda.memory_allocated(),
        "peak_bytes": torch.cuda.max_memory_allocated(),
        "reserved_bytes": torch.cuda.max_memory_reserved(),
        "used_bytes": total - free,
        "losses": losses,
        "device": torch.cuda.get_device_name(),
        "torch": torch.__version__,
    }


def start_parallel(point: Point) -> None:
    import torch
    from megatron.core import parallel_state, tensor_parallel

    torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    torch.distributed.init_process_group("nccl")
    parallel_state.initialize_model_parallel(
        tensor_model_parallel_size=point.tp,
        expert_model_parallel_size=point.ep,
        expert_tensor_parallel_size=point.tp if point.experts else None,
    )
    tensor_parallel.model_parallel_cuda_manual_seed(1)


def build_model(point: Point) -> tuple[Any, Any]:
    """A GPT of Llama's kind, wrapped for data parallelism with fp32 gradients."""
    import torch
    from megatron.core.distributed import DistributedDataParallel, DistributedDataParallelConfig
    from megatron.core.models.gpt.gpt_layer_specs import get_gpt_layer_local_spec
    from megatron.core.models.gpt.gpt_model import GPTModel
    from megatron.core.transformer.transformer_block import TransformerBlockSubmodules

    config = transformer_config(point)
    layer = get_gpt_layer_local_spec(num_experts=point.experts or None, normalization="RMSNorm")
    layer.submodules.input_layernorm = layer.submodules.pre_mlp_layernorm = norm
    with torch.device("cuda"):
        model = GPTModel(
            config,
            TransformerBlockSubmodules([layer] * point.layers, norm),
            point.vocab,
            point.seq,
            position_embedding_type="rope",
            share_embeddings_and_output_weights=False,
        )
    model = model.cuda().bfloat16()
    ddp = DistributedDataParallelConfig(grad_reduce_in_fp32=True, use_distributed_optimizer=True)
    return DistributedDataParallel(config, ddp, model), config


def transformer_config(point: Point) -> Any:
    import torch
    from megatron.core.transformer.transformer_config import TransformerConfig

    moe: dict[str, Any] = {}
    if point.experts:
        moe = {
            "num_moe_experts": point.experts,
            "moe_router_topk": point.topk,
            "moe_ffn_hidden_size": point.ffn,
            "moe_token_dispatcher_type": "alltoall",
            "moe_router_load_balancing_type": "aux_loss",
            "moe_aux_loss_coeff": 0.01,
            "expert_model_parallel_size": point.ep,
            "expert_tensor_parallel_size": point.tp,
        }
    recompute: dict[str, Any] = {}
    if point.recompute != "none":
        recompute = {"recompute_granularity": point.recompute}
    if point.recompute == "full":
        recompute |= {"recompute_method": "uniform", "recompute_num_layers": 1}
    return TransformerConfig(
        num_layers=point.layers,
        hidden_size=point.hidden,
        num_attention_heads=point.heads,
        num_query_groups=point.kv_heads,
        ffn_hidden_size=point.ffn,
        gated_linear_unit=True,
        activation_func=torch.nn.functional.silu,
        add_bias_linear=False,
        normalization="RMSNorm",
        hidden_dropout=0.0,
        attention_dropout=0.0,
        bf16=True,
        params_dtype=torch.bfloat16,
        pipeline_dtype=torch.bfloat16,
        tensor_model_parallel_size=point.tp,
        sequence_parallel=point.sequence_parallel,
        masked_softmax_fusion=False,
        bias_activation_fusion=False,
        gradient_accumulation_fusion=False,
        persist_layer_norm=False,
        **moe,
        **recompute,
    )


def norm(config: Any, hidden_size: int, eps: float = 1e-5, **more: Any) -> Any:
    """torch's RMSNorm, also for sequence parallelism: Megatron-Core refuses its own wrapper there, since the
    gradient of a norm's weight must then be summed over tensor-parallel ranks, which this mark asks for."""
    import torch

    made = torch.nn.RMSNorm(hidden_size, eps=eps)
    made.weight.sequence_parallel = config.sequence_parallel  # type: ignore[attr-defined]
    return made


def build_optimizer(model: Any) -> Any:
    from megatron.core.optimizer import OptimizerConfig, get_megatron_optimizer

    config = OptimizerConfig(optimizer="adam", lr=1e-4, bf16=True, use_distributed_optimizer=True)
    return get_megatron_optimizer(config, [model])


def step(point: Point, model: Any, config: Any, optimizer: Any) -> float:
    """One step on random tokens, as Megatron-LM trains: zero, forward, backward, reduce, step."""
    import torch
    from megatron.core.distributed import finalize_model_grads
    from megatron.core.pipeline_parallel import get_forward_backward_func

    config.finalize_model_grads_func = finalize_model_grads
    model.zero_grad_buffer()
    optimizer.zero_grad()
    losses = get_forward_backward_func()(
        forward_step_func=forward_step,
        data_iterator=iter([point]),
        model=[model],
        num_microbatches=1,
        seq_length=point.seq,
        micro_batch_size=point.micro_batch,
    )
    optimizer.step()
    torch.cuda.synchronize()
    return float(losses[0]["loss"])


def forward_step(data: Iterator[Point], model: Any) -> tuple[Any, Any]:
    import torch

    point = next(data)
    shape = (point.micro_batch, point.seq)
    tokens = torch.randint(0, point.vocab, shape, device="cuda")
    positions = torch.arange(point.seq, device="cuda").expand(shape)
    mask = torch.ones(point.seq, point.seq, dtype=torch.bool, device="cuda").triu(1)[None, None]
    output = model(tokens, positions, mask, labels=tokens)

    def loss(values: Any) -> tuple[Any, Mapping[str, Any]]:
        mean = values.float().mean()
        return mean, {"loss": mean.detach()}

    return output, loss


# -- all points --------------------------------------------------------------------------------------


def start(point: Point, first_gpu: int) -> list[subprocess.Popen[str]]:
    """One process a rank, on GPUs from `first_gpu` on."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    common = {
        "WORLD_SIZE": str(point.gpus),
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": port,
        "CUDA_DEVICE_MAX_CONNECTIONS": "1",
        "CUDA_VISIBLE_DEVICES": ",".join(str(first_gpu + rank) for rank in range(point.gpus)),
    }
    return [
        subprocess.Popen(
            [sys.executable, __file__, "--rank", json.dumps(asdict(point))],
            env={**os.environ, **common, "RANK": str(rank), "LOCAL_RANK": str(rank)},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        for rank in range(point.gpus)
    ]


def finish(point: Point, processes: Sequence[subprocess.Popen[str]]) -> dict[str, Any]:
    """The largest rank's figures; where a rank failed, its last line."""
    end = time.monotonic() + LIMIT_S
    seen: list[dict[str, Any]] = []
    problem = ""
    for process in processes:
        try:
            text = process.communicate(timeout=max(1.0, end - time.monotonic()))[0]
        except subprocess.TimeoutExpired:
            for other in processes:
                other.kill()
            problem = problem or f"no end within {LIMIT_S:.0f} s"
            continue
        found = [line for line in text.splitlines() if line.startswith(MARK)]
        if found:
            seen.append(json.loads(found[0].removeprefix(MARK)))
        else:
            problem = problem or (text.strip().splitlines() or ["ended without a word"])[-1]
    if problem:
        return {"point": asdict(point), "problem": problem}
    return {"point": asdict(point), **max(seen, key=lambda item: item["peak_bytes"])}


def measure(chosen: Sequence[Point], gpus: int) -> list[dict[str, Any]]:
    """Points of one GPU side by side, the others one after another."""
    rows: list[dict[str, Any]] = []
    single = [point for point in chosen if point.gpus == 1]
    for at in range(0, len(single), gpus):
        group = single[at : at + gpus]
        started = [start(point, gpu) for gpu, point in enumerate(group)]
        rows += [finish(point, processes) for point, processes in zip(group, started, strict=True)]
    rows += [finish(point, start(point, 0)) for point in chosen if 1 < point.gpus <= gpus]
    return rows


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--out", type=Path, help="write the rows to this file as JSON")
    parser.add_argument("--only", default="", help="points by name, separated by commas (default all)")
    parser.add_argument("--border", action="store_true", help="points that may not fit an H200 instead")
    parser.add_argument("--rank", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.rank:
        print(MARK + json.dumps(train(Point(**json.loads(args.rank)))), flush=True)
        return 0
    import torch

    only = set(args.only.split(",")) if args.only else set()
    chosen = border() if args.border else points()
    rows = measure([p for p in chosen if not only or p.name in only], torch.cuda.device_count())
    print("| point | parameters | peak GiB | reserved GiB | used GiB |\n|---|---|---|---|---|")
    for row in rows:
        values = [row.get(f"{key}_bytes", 0) / 1024**3 for key in ("peak", "reserved", "used")]
        text = (
            row.get("problem")
            or ("out of memory" if row.get("oom") else "")
            or " | ".join(f"{value:.2f}" for value in values)
        )
        print(f"| {row['point']['name']} | {row.get('parameters', 0) / 1e6:.0f} M | {text} |")
    if args.out:
        args.out.write_text(json.dumps(rows, indent=1) + "\n")
    return 1 if any("problem" in row for row in rows) else 0


if __name__ == "__main__":
    sys.exit(main())
