"""GPU, driver and packages that a node tells."""

from __future__ import annotations

from pathlib import Path

import pytest

from jobspec.runtime.node.software import software

# Source: /proc/driver/nvidia/version of the closed and of the open kernel module.
VERSIONS = [
    (
        "NVRM version: NVIDIA UNIX x86_64 Kernel Module  550.54.15  Tue Mar  5 22:23:56 UTC 2024\n",
        "550.54.15",
    ),
    (
        "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  570.124.06  Release Build  (root@host)\n"
        "GCC version:  gcc version 12.3.0\n",
        "570.124.06",
    ),
    ("unreadable\n", ""),
]


@pytest.mark.parametrize(("text", "driver"), VERSIONS)
def test_driver_and_gpus(text: str, driver: str, tmp_path: Path) -> None:
    (tmp_path / "version").write_text(text)
    for bus in ("0000:1b:00.0", "0000:43:00.0"):
        (tmp_path / "gpus" / bus).mkdir(parents=True)
        (tmp_path / "gpus" / bus / "information").write_text("Model: \t\t NVIDIA H200\nIRQ:   \t\t 121\n")
    found = software(tmp_path)
    assert (found["driver"], found["gpu_type"]) == (driver, "NVIDIA H200")


def test_a_node_without_a_gpu_tells_its_packages(tmp_path: Path) -> None:
    import numpy as np

    found = software(tmp_path / "none")
    packages = found["packages"]
    assert (found["driver"], found["gpu_type"]) == ("", "")
    assert isinstance(packages, dict) and packages["numpy"] == np.__version__
    assert "skyrl" not in packages and all(packages.values())
