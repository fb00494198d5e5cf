"""The memory estimate beside peaks that real Megatron-Core runs had on H200s (`benchmarks/gpu/memory.py`)."""

from __future__ import annotations

import json
import statistics
from pathlib import Path
from types import ModuleType

import pytest

from tests.kits.script_module import load_script

SCRIPT = Path(__file__).parents[2] / "benchmarks/gpu/memory_score.py"


@pytest.fixture(scope="module")
def script() -> ModuleType:
    return load_script(SCRIPT, "memory_score_gpu")  # tests/megatron has one of this name


def test_estimate_is_near_every_measured_peak(script: ModuleType) -> None:
    scores = [script.score(row) for row in json.loads(script.POINTS.read_text())]
    errors = {item.name: round(item.error, 3) for item in scores}
    assert len(errors) == 29
    assert statistics.median(map(abs, errors.values())) < 0.04, errors
    assert max(map(abs, errors.values())) < 0.1, errors


def test_state_is_what_stays_between_steps(script: ModuleType) -> None:
    """Weights, gradients and optimizer are arithmetic; the last output and buffers stay beside them."""
    for row in json.loads(script.POINTS.read_text()):
        parts = script.score(row).parts
        state = sum(parts[name] for name in ("weights", "gradients", "optimizer"))
        beside = row["between_steps_bytes"] / 1024**3 - state
        assert 0.0 < beside < 1.0, row["point"]["name"]


def test_no_outcome_at_the_border_is_wrong(script: ModuleType) -> None:
    """What ran is never said not to fit, what ran out of memory never to fit; `tight` is a warning."""
    found = script.outcomes(json.loads(script.BORDER.read_text()))
    assert sum(oom for oom, _ in found.values()) == 4
    assert all(said != ("fits" if oom else "does not fit") for oom, said in found.values()), found
    assert sum(said == "does not fit" for _, said in found.values()) == 3
