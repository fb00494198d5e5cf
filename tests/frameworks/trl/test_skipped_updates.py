"""Updates that DeepSpeed's loss scaler left out: their steps count, and the verdict says so."""

from __future__ import annotations

from pathlib import Path

from tests.judging.test_runs_as_people_have_them import judged, write

OVERFLOW = (
    "[2026-01-15 10:12:38,433] [INFO] [loss_scaler.py:183:update_scale] [deepspeed]"
    " OVERFLOW! Rank 0 Skipping step. Attempted loss scale: 65536, reducing to 32768"
)


def limits(folder: Path, *lines: str) -> str:
    steps = [f"{{'loss': {2 - step / 50}, 'grad_norm': 1.0, 'epoch': {step / 20}}}" for step in range(1, 21)]
    bars = [f"  1%|          | {step}/20 [01:11<1:10:12, 71.40s/it]" for step in range(1, 21)]
    rows = [line for pair in zip(steps, bars, strict=True) for line in pair]
    write(folder / "train.log", ["accelerate launch sft.py", *lines, *rows])
    found = judged(folder, "trl", "smoke", steps=20).deliverable("Training")
    assert found is not None
    return " ".join(found.limits)


def test_skipped_updates_are_told(tmp_path: Path) -> None:
    assert "1 line of train.log says that DeepSpeed skipped" in limits(tmp_path, OVERFLOW)
    assert "2 lines of train.log say" in limits(tmp_path, OVERFLOW, OVERFLOW)


def test_nothing_is_told_where_none_was_skipped(tmp_path: Path) -> None:
    assert "skipped" not in limits(tmp_path, "[INFO] Skipping step of the warm-up of the cache")
