"""Steps that no record of their own shows: a trainer logs each tenth alone, or broke off between two."""

from __future__ import annotations

import json
from pathlib import Path

from tests.judging.test_runs_as_people_have_them import BLOCKED, CLOSING, PASS, judged, trainer, write

ENDED = (
    "W0608 08:11:06.999000 12152 torch/distributed/elastic/agent/server/api.py:704] "
    "Received 1 death signal, shutting down workers"
)


def state(place: Path, last: int, every: int, steps: int) -> None:
    record = {"step": every, "loss": 0.1, "grad_norm": 0.5, "reward": 0.4, "reward_std": 0.2}
    data = {"global_step": last, "logging_steps": every, "max_steps": steps, "log_history": [record]}
    write(place / "trainer_state.json", [json.dumps(data)])


def test_one_record_of_a_state_stands_for_the_steps_before_it(tmp_path: Path) -> None:
    state(tmp_path, 12, 10, 12)
    verdict = judged(tmp_path, "trl")
    assert verdict.result is PASS
    assert any("12 of 12 planned train steps ran;" in item.reason for item in verdict.deliverables)


def test_state_tells_how_far_a_run_came_after_its_last_record(tmp_path: Path) -> None:
    state(tmp_path, 9, 5, 9)
    assert "is the last that was read" not in judged(tmp_path).reason
    state(tmp_path, 7, 5, 9)
    assert "step 7 of 9 is the last that was read" in judged(tmp_path).reason


def test_steps_after_the_last_record_of_a_run_that_broke_off_did_not_all_run(tmp_path: Path) -> None:
    lines = [line for line in trainer(36, 36) if not line.startswith("{") or "{'loss" in line]
    dicts = [at for at, line in enumerate(lines) if line.startswith("{")]
    kept = [line for at, line in enumerate(lines) if at not in dicts or dicts.index(at) % 10 == 9]
    write(tmp_path / "train.log", [*kept, ENDED, CLOSING])
    verdict = judged(tmp_path, "trl")
    said = " ".join(item.reason for item in verdict.deliverables)
    assert verdict.result is BLOCKED
    assert "36 of 36" not in said
    assert "30 of 36 planned train steps" in said


def test_steps_behind_the_last_of_seldom_records_are_not_said_to_miss(tmp_path: Path) -> None:
    history = [{"step": step, "loss": 0.1, "grad_norm": 0.5, "reward": 0.4} for step in range(5, 116, 5)]
    data = {"global_step": 115, "logging_steps": 5, "max_steps": 600, "log_history": history}
    write(tmp_path / "trainer_state.json", [json.dumps(data)])
    said = " ".join(item.reason for item in judged(tmp_path, "trl", steps=600).deliverables)
    assert "step 115 of 600 planned train steps is the last one with a `reward` in" in said
    assert "115 of 600 planned train steps were" not in said, "those up to 119 may have run"
    assert "missing" not in said


def test_a_step_that_counts_from_0_is_called_by_its_own_number(tmp_path: Path) -> None:
    write(tmp_path / "metrics.jsonl", (json.dumps({"step": n, "loss": 2.0 - n / 10}) for n in range(14)))
    verdict = judged(tmp_path, "command", "run", steps=50)
    said = " ".join(item.reason for item in verdict.deliverables)
    assert "14 of 50 planned train steps were read; step 14 (counted from 0) is the first missing one" in said
