"""GPU, driver and packages of a node, for whoever repeats the run. Reads files, starts nothing."""

from __future__ import annotations

import re
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Dict

NVIDIA = Path("/proc/driver/nvidia")
# What decides about results: frameworks, engines and what they compute with.
PACKAGES = (
    *("torch", "transformers", "accelerate", "datasets", "numpy", "ray", "vllm", "sglang", "triton"),
    *("trl", "verl", "skyrl", "skyrl-train", "nemo-rl", "rlix", "peft", "deepspeed", "tensordict"),
    *("megatron-core", "megatron-bridge", "mbridge", "transformer-engine", "flash-attn", "flashinfer-python"),
)


def software(nvidia: Path = NVIDIA) -> Dict[str, object]:
    """`gpu_type` and `driver`, empty without a GPU, and the versions of packages of this Python."""
    models = sorted({_found(r"^Model:\s*(.+?)\s*$", file) for file in nvidia.glob("gpus/*/information")})
    return {
        "gpu_type": ", ".join(filter(None, models)),
        "driver": _found(r"^NVRM version:.*?Kernel Module.*?\s(\d+\.[\d.]+)\s", nvidia / "version"),
        "packages": packages(),
    }


def packages() -> Dict[str, str]:
    found = {name: _version(name) for name in PACKAGES}
    return {name: text for name, text in found.items() if text}


def _version(name: str) -> str:
    try:
        return str(version(name) or "")
    except (PackageNotFoundError, OSError, ValueError):  # a damaged installation is not told here
        return ""


def _found(pattern: str, file: Path) -> str:
    try:
        match = re.search(pattern, file.read_text("utf-8", "replace"), re.MULTILINE)
    except OSError:
        return ""
    return match.group(1) if match else ""
