"""Sampling of GPUs, by a stand-in for `nvidia-smi` that prints what the real one does."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from jobspec.metrics import read_metrics
from jobspec.runtime.node import gpu_sampler

REAL = "0, 1234, 97\n1, 80512, 0\n"  # driver 580, two H100


def fake_nvidia_smi(folder: Path, body: str) -> dict[str, str]:
    program = folder / "nvidia-smi"
    program.write_text(f"#!/bin/bash\n{body}\n")
    program.chmod(0o755)
    return {"PATH": f"{folder}:/usr/bin:/bin"}


def test_samples_become_metrics(tmp_path: Path) -> None:
    env = fake_nvidia_smi(tmp_path, f"printf '{REAL}'")
    file = tmp_path / "metrics" / "gpu-n1.jsonl"
    file.parent.mkdir()
    with gpu_sampler.sampling(file, 2, env, interval_s=0.02):
        while not file.exists() or file.read_text().count("\n") < 3:
            time.sleep(0.01)
    table = read_metrics(file.parent)
    assert set(table.values("gpu/1/memory_gib")) == {78.625}
    assert set(table.values("gpu/0/busy_percent")) == {97.0}
    assert table.last_step() is None
    written = file.read_text()
    time.sleep(0.06)
    assert file.read_text() == written, "it goes on after the command ended"


@pytest.mark.parametrize(
    ("text", "found"),
    [
        (REAL, [(0, 1234 / 1024, 97.0), (1, 78.625, 0.0)]),
        ("0, [N/A], [N/A]\n1, 10, 5\n", [(1, 10 / 1024, 5.0)]),
        ("NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver.\n", []),
        ("", []),
    ],
)
def test_what_is_not_told_is_left_out(text: str, found: list[gpu_sampler.Sample]) -> None:
    assert gpu_sampler.parse(text) == found


@pytest.mark.parametrize("body", ["exit 9", "printf '\\xff'", "exec sleep 60"])
def test_a_broken_nvidia_smi_costs_nothing(
    tmp_path: Path, body: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gpu_sampler, "TIMEOUT_S", 0.2)
    assert gpu_sampler.sample(str(tmp_path / "nvidia-smi"), fake_nvidia_smi(tmp_path, body)) == []


def test_no_gpu_no_file(tmp_path: Path) -> None:
    env = fake_nvidia_smi(tmp_path, f"printf '{REAL}'")
    with (
        gpu_sampler.sampling(tmp_path / "a.jsonl", 0, env),
        gpu_sampler.sampling(tmp_path / "b.jsonl", 1, {"PATH": "/x"}),
    ):
        pass
    assert not list(tmp_path.glob("*.jsonl"))


def test_event_files_are_read_beside_samples(tmp_path: Path) -> None:
    writer = pytest.importorskip("torch.utils.tensorboard").SummaryWriter(tmp_path)
    writer.add_scalar("train/reward", 0.5, 1)
    writer.close()
    (tmp_path / "gpu-n1.jsonl").write_text(gpu_sampler.record([(0, 1.0, 2.0)], 3.0))
    assert read_metrics(tmp_path).values("train/reward") == [0.5]
