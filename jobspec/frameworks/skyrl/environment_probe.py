"""What the environment of a run must have before a model is built: imports, interfaces, packages of settings.

Without this SkyRL says it itself, but only after Ray's workers have started, one lack after another: 40 to
100 s each on a GPU. Source: SkyRL at a9564572, vLLM 0.24 and 0.26, vllm-router 0.1.14 to 0.1.17.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from jobspec.frameworks.base import Context
from jobspec.frameworks.shared.piped_script import import_probe
from jobspec.frameworks.skyrl import dummy_trainers
from jobspec.frameworks.skyrl.accepted_settings import read_options
from jobspec.frameworks.skyrl.locked_versions import brings_own
from jobspec.frameworks.skyrl.settings import FUSION, PROMETHEUS, has_remote_engines, setting, strategy

BACKEND = "skyrl.backends.skyrl_train"
SERVERS = f"{BACKEND}.inference_servers"
ACTOR, ROUTER = f"{SERVERS}.vllm_server_actor", f"{SERVERS}.vllm_router"
WORKERS = {
    "megatron": f"{BACKEND}.workers.megatron.megatron_worker",
    "fsdp": f"{BACKEND}.workers.fsdp.fsdp_worker",
}
MEGATRON_PACKAGES = ("megatron.core", "megatron.bridge", "transformer_engine.pytorch", "modelopt")
FLASH_ATTENTION = ["flash_attn", "flash_attn_3", "flash_attn_interface"]
# As SkyRL does for all workers with Megatron, since Megatron-Core wants to see a device when it is imported.
WORKER_ENV = {"megatron": {"RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0"}}


def probe(context: Context, launcher: tuple[str, ...], checkout: Path) -> str:
    """Bash that ends a run whose environment lacks something.

    Empty for `uv`, which builds what is locked, and for a checkout that lays its workers out otherwise.
    """
    needed = list(_imports(context, checkout))
    if not brings_own(launcher) or not needed:
        return ""
    named = strategy(context)
    packages = MEGATRON_PACKAGES if named == "megatron" else ()
    request = {
        "modules": ["skyrl", *packages, "vllm", "vllm_router", "transformers"],
        "needed": needed,
        "needs": list(_needs(context, checkout)),
        "roots": {"skyrl": str(checkout)},
        "worker_env": WORKER_ENV.get(named, {}),
    }
    return import_probe(launcher[0], request)


def _imports(context: Context, checkout: Path) -> Iterator[str]:
    """The modules of SkyRL that import all that a worker, an engine and the router need."""
    if not _has(checkout, ACTOR):  # an earlier SkyRL, or a later one
        return
    engines = () if dummy_trainers.may_be_dummy(context) else (ACTOR, ROUTER)
    for module in (WORKERS.get(strategy(context), ""), *engines):
        if module and _has(checkout, module):
            yield module


def _has(checkout: Path, module: str) -> bool:
    return (checkout / f"{module.replace('.', '/')}.py").is_file()


def _needs(context: Context, checkout: Path) -> Iterator[dict[str, Any]]:
    if strategy(context) == "megatron":
        yield from _megatron_needs(context)
    if dummy_trainers.may_be_dummy(context):
        return
    yield {
        "takes": "vllm.entrypoints.openai.api_server:create_server_socket",
        "parameter": "reuse_port",
        "problem": "vLLM's `create_server_socket` takes no `reuse_port`, which SkyRL passes: "
        "install the vLLM that the checkout locks",
    }
    yield {
        "takes": "vllm_router.router_args:RouterArgs",
        "parameter": "pd_disaggregation",
        "problem": "vllm-router's `RouterArgs` has no `pd_disaggregation`, which SkyRL reads: "
        "install the vllm-router that the checkout locks (0.1.14 has it, 0.1.15 and later do not)",
    }
    options = read_options(checkout)
    asks = setting(context, PROMETHEUS) and not has_remote_engines(context)
    if options is not None and options.accepts(PROMETHEUS) and asks:
        yield {
            "imports": "ray.serve",
            "problem": "`ray.serve` cannot be imported, and vLLM needs it for Ray's Prometheus statistics, "
            f"on by SkyRL's default: set `train.overrides.{PROMETHEUS}: false`, or install ray[serve]",
        }


def _megatron_needs(context: Context) -> Iterator[dict[str, Any]]:
    if setting(context, "trainer.flash_attn") and setting(context, "trainer.remove_microbatch_padding"):
        yield {
            "any_of": FLASH_ATTENTION,
            "problem": "no flash-attn is there, and with `trainer.flash_attn`, on by SkyRL's default, "
            "Transformer Engine has no other attention for micro-batches without padding: set "
            "`train.overrides.trainer.flash_attn: false`",
        }
    if setting(context, FUSION):
        yield {
            "any_of": ["fused_weight_gradient_mlp_cuda"],
            "problem": "Apex's fused_weight_gradient_mlp_cuda is not there, and Megatron asks for it: set "
            f"`train.overrides.{FUSION}: false`, or remove the key",
        }
