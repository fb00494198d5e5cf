"""Rules of the environment that a spec itself shows: variables, Python, the model's type, a shared node.

Source: SkyRL at a9564572, `prepare_runtime_environment`. What only the installed packages show is in
`environment_probe`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

from jobspec.finding import Finding, error, warning
from jobspec.frameworks.base import Context
from jobspec.frameworks.skyrl import dummy_trainers
from jobspec.frameworks.skyrl.settings import has_remote_engines, setting, strategy

ATTENTION_SWITCHES = ("NVTE_FLASH_ATTN", "NVTE_FUSED_ATTN")
PYTHON = re.compile(r"python(3\.\d+)$")


def check_environment(context: Context) -> Iterator[Finding]:
    yield from check_attention(context)
    yield from check_dtype(context)
    yield from check_shared_node(context)
    match = PYTHON.search(context.spec.container.python or "")
    if match and match.group(1) != "3.12":
        what = f"`container.python` is Python {match.group(1)}"
        why = "SkyRL's images and its Ray are built for Python 3.12, and the versions must be the same"
        yield error("skyrl.python", what, why, "use Python 3.12", path="container.python")


def check_attention(context: Context) -> Iterator[Finding]:
    """SkyRL turns fused attention off where `trainer.flash_attn` is on, and flash attention nowhere."""
    env: dict[str, Any] = {**context.cluster.env, **context.spec.container.env}
    flash = bool(setting(context, "trainer.flash_attn"))
    if strategy(context) != "megatron":
        return
    name = ATTENTION_SWITCHES[0] if flash else ATTENTION_SWITCHES[1]
    if str(env.get(name)) == "0":
        told = "true" if flash else "false"
        other = "fused" if flash else "flash"
        left = "turns fused attention off as well" if flash else "expects fused attention"
        yield error(
            "skyrl.flash-attention",
            f"`{name}=0` reaches the workers, where SkyRL {left}: `trainer.flash_attn` is {told}",
            "only unfused attention is left: it takes no packed sequences, and its memory grows with the "
            "square of the length",
            f"remove it, or set `trainer.flash_attn` to {'false' if flash else 'true'} for {other} attention",
            path=f"container.env.{name}",
        )


def check_shared_node(context: Context) -> Iterator[Finding]:
    """A warning where another run may be on the node.

    Source: `VLLM_START_PORT` of SkyRL's inference_servers/setup.py, a constant. vLLM binds its port with
    SO_REUSEADDR and listens only once its model is loaded: until then another process gets the same port.
    """
    resources, gpus = context.spec.resources, context.cluster.node.gpus or 0
    alone = resources.nodes > 1 if resources.exclusive is None else resources.exclusive
    if alone or context.gpus_per_node >= gpus or dummy_trainers.may_be_dummy(context):
        return
    if has_remote_engines(context):
        return
    yield warning(
        "skyrl.shared-node",
        f"the run takes {context.gpus_per_node} of a node's {gpus} GPUs, and SkyRL's engines always use the "
        "ports from 8000 on",
        "two runs that start on a node at once choose the same port, and one asks the other's engine",
        "have one SkyRL run on a node at a time: under Slurm set `resources.exclusive: true`",
        path="resources.exclusive",
    )


def check_dtype(context: Context) -> Iterator[Finding]:
    """A warning where the model is stored in float32. Source: Megatron-Bridge 91a15142, `params_dtype`."""
    folder = context.model.folder
    if strategy(context) != "megatron" or folder is None:
        return
    try:
        config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return
    if isinstance(config, dict) and (config.get("dtype") or config.get("torch_dtype")) == "float32":
        yield warning(
            "skyrl.float32",
            "the model's config.json says float32",
            "Megatron-Bridge takes the type of its parameters from it and SkyRL sets none, while the engine "
            "computes in bfloat16: nobody has shown that the two fit",
            "store the model in bfloat16",
            path="model",
        )
