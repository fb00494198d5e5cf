"""The weight-sync gate: does this checkout carry weights intact from this trainer to these engines?

A wrong transfer raises nothing: the engines answer in coherent nonsense and every reward is 0. So jobspec
reads the checkout before submission. Source: SkyRL pull request 1816 and its review; vLLM's issues are
named below.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from jobspec.finding import Finding, error, warning
from jobspec.frameworks.base import Context
from jobspec.frameworks.skyrl.chunk_plan import ANNOUNCES, SENDS, has_one_plan
from jobspec.frameworks.skyrl.settings import ENGINE, engine_nodes, setting, strategy
from jobspec.megatron.architecture import MAMBA, Architecture

BACKEND = "skyrl/backends/skyrl_train"
IPC = f"{BACKEND}/weight_sync/cuda_ipc_strategy.py"
RECEIVER = f"{BACKEND}/inference_servers/new_inference_worker_wrap.py"
WORKER = f"{BACKEND}/workers/megatron/megatron_worker.py"
RELOAD = f"{BACKEND}/inference_servers/layerwise_reload.py"
PER_GPU, BIAS, CAP = "per_gpu_meta_pickled", "e_score_correction_bias", "min(numel"
RELOAD_PATCH = "get_numel_loaded"
SEGMENTS_SINCE, RELOAD_SINCE = (0, 20, 1), (0, 23)  # vLLM releases
IMAGE_RAY = re.compile(r"\bray-(\d+\.\d+\.\d+)\b")
# Model families whose routers score by a sigmoid and correct it by a bias for each expert.
SIGMOID = ("nemotron-3", "glm-4", "glm-5", "deepseek-v3", "deepseek-r1", "kimi-k2", "moonlight")
FIX = "use a checkout with SkyRL pull request 1816"


def pinned(checkout: Path, package: str) -> tuple[int, ...]:
    """The version of `package` that the checkout's pyproject.toml pins by `==`; empty without a pin."""
    try:
        text = (checkout / "pyproject.toml").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ()
    pin = re.search(rf"[\"']{package}(?:\[[^\]]*\])?==(\d+(?:\.\d+)*)", text)
    return _version(pin.group(1)) if pin else ()


def _version(text: str) -> tuple[int, ...]:
    return tuple(int(part) for part in text.split("."))


def check_versions(context: Context, checkout: Path) -> Iterator[Finding]:
    """Versions that the checkout pins, against the plan and against what the image's name says."""
    vllm, ray = pinned(checkout, "vllm"), pinned(checkout, "ray")
    path = f"train.overrides.{ENGINE}.use_expandable_segments"
    if vllm and vllm < SEGMENTS_SINCE and setting(context, f"{ENGINE}.use_expandable_segments"):
        what = f"expandable segments are on, and this checkout pins vLLM {_text(vllm)}"
        why = f"vLLM's sleep mode refuses expandable segments before {_text(SEGMENTS_SINCE)}"
        yield error("skyrl.expandable-segments", what, why, "set it to false", path=path)
    named = IMAGE_RAY.search(context.container.image)
    if named and ray and _version(named.group(1)) != ray:
        yield warning(
            "skyrl.image-ray",
            f"the image's name says Ray {named.group(1)}, and the checkout pins {_text(ray)}",
            "the cluster runs the image's Ray, which refuses drivers of another version",
            "use the image of this checkout's release",
            path="container.image",
        )


def _text(version: tuple[int, ...]) -> str:
    return ".".join(map(str, version))


def check_sync(context: Context, checkout: Path) -> Iterator[Finding]:
    """Findings about the transfer of weights from Megatron to vLLM."""
    if strategy(context) != "megatron" or not _is_nccl(context):
        return
    parallel, model = context.spec.train.parallel, context.spec.model
    name = (model.id or model.path or "").lower() if model else ""
    arch = context.model.architecture
    colocated = bool(setting(context, "trainer.placement.colocate_all"))
    bias = any(family in name for family in SIGMOID)
    if (
        colocated
        and (parallel.pp > 2 or parallel.ep > 16)
        and not _both_have(checkout, (IPC, RECEIVER), PER_GPU)
    ):
        yield error(
            "skyrl.sync-metadata",
            f"with pp {parallel.pp} and ep {parallel.ep} this checkout gives weights wrong names in vLLM",
            "each rank packs its own buffer, but the first rank's list cuts all buffers: rewards stay 0",
            f"{FIX}, or pp of at most 2 and ep of at most 16",
            path="train.parallel",
        )
    keeps_fp32 = _has(checkout, WORKER, BIAS)
    if bias and not keeps_fp32:
        yield error(
            "skyrl.sync-router-bias",
            "this checkout sends the router's bias of each expert in bfloat16",
            "biases of 25 to 57 differ by less than bfloat16 resolves: routing collapses",
            FIX,
            path="repos",
        )
    if bias and keeps_fp32 and not colocated and not has_one_plan(checkout / WORKER):
        yield error(
            "skyrl.sync-broadcast",
            "with separate engines, weights of two types come in another order than the checkout announces",
            "the broadcast path announces them ungrouped: engines answer nonsense or wait for half an hour",
            f"place the engines on the trainer's GPUs (`trainer.placement.colocate_all: true`), or let "
            f"`{ANNOUNCES}` and `{SENDS}` walk one generator, as the review of pull request 1816 says",
            path="train.overrides.trainer.placement.colocate_all",
        )
    yield from _check_reload(checkout, arch)
    if engine_nodes(context) > 1 and setting(context, f"{ENGINE}.distributed_executor_backend") == "mp":
        what = f"an engine spans {engine_nodes(context)} nodes, and the executor `mp` stays on one"
        path = f"train.overrides.{ENGINE}.distributed_executor_backend"
        yield error("skyrl.executor", what, fix="use `ray`", path=path)


def _check_reload(checkout: Path, arch: Architecture | None) -> Iterator[Finding]:
    vllm = pinned(checkout, "vllm")
    if arch is None or not arch.count(MAMBA) or vllm >= RELOAD_SINCE:
        return
    if not (_has(checkout, RELOAD, CAP) or _has(checkout, RELOAD, RELOAD_PATCH)):
        yield warning(
            "skyrl.sync-reload",
            "nothing in this checkout guards vLLM's layerwise reload of Mamba layers",
            "vLLM up to 0.22 finishes a layer early and leaves `mixer.D` unset (vLLM pull request 44814)",
            f"{FIX}, or an image with a later vLLM",
            path="container.image",
        )


def _is_nccl(context: Context) -> bool:
    return str(setting(context, f"{ENGINE}.weight_sync_backend")) == "nccl"


def _both_have(checkout: Path, files: tuple[str, ...], text: str) -> bool:
    return all(_has(checkout, file, text) for file in files)


def _has(checkout: Path, file: str, text: str) -> bool:
    """Whether a source file holds `text`, outside its comment lines."""
    try:
        lines = (checkout / file).read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return False
    return any(text in line for line in lines if not line.lstrip().startswith("#"))
