"""A slow but healthy run is never ended, and a run that stands is seen: recorded and made paces."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
import yaml

from jobspec.runtime.stalls.lines import EVAL, GENERATE, SAVE, START, STEP, LineSigns
from jobspec.runtime.stalls.pace import LEAST_S, Pace, Signs, ends, kind

PACES = yaml.safe_load(Path(__file__).with_name("paces.yaml").read_text())
FIXTURES = Path(__file__).parents[2] / "fixtures"
LOOK_S = 15.0


def play(pace: Pace, paces: list[list[Any]]) -> list[float]:
    """The lengths of the pauses in which the run would have been looked at."""
    now, work, seen = 0.0, 0.0, []
    pace.see(Signs(now, START, {"steps": work}))
    for phase, seconds, times in paces:
        for _ in range(times):
            stood, end = False, now + seconds
            while now < end:
                now = min(end, now + LOOK_S)
                work += (now == end) or phase == "grows"
                pace.see(Signs(now, SAVE if phase == "grows" else phase, {"steps": work}))
                stood = stood or pace.stands
            seen += [seconds] if stood else []
    return seen


@pytest.mark.parametrize("case", PACES, ids=lambda case: case["of"])
def test_healthy_paces(case: dict[str, Any]) -> None:
    seen = play(Pace(), case["paces"])
    assert seen == ([case["seen"]] if "seen" in case else [])
    # A processor of a healthy run moves between two samples: then no action ends it.
    assert not any(ends(action, False) for action in ("dump", "end", "requeue"))


def test_at_least_twenty_public_paces() -> None:
    assert len(PACES) >= 20


@pytest.mark.parametrize("stretch", [1, 10])
@pytest.mark.parametrize(
    "log",
    [
        "skyrl_fsdp/attempts/1/logs/vm/train.log",
        "skyrl_fsdp/attempts/1/logs/vm/resume.log",
        "skyrl_megatron/attempts/1/logs/vm/train.log",
        "skyrl_megatron/attempts/1/logs/vm/resume.log",
        "verl_gpu/learning/train.log",
    ],
)
def test_recorded_runs_of_our_own(log: str, stretch: int) -> None:
    """Each line at its own time, also as if all took ten times as long."""
    pace, signs, seen, begin, steps = Pace(), LineSigns(), False, None, 0
    for line in (FIXTURES / log).read_text(errors="replace").splitlines():
        for word in range(min(60, len(line))):
            try:
                time = datetime.fromisoformat(line[word : word + 19]).timestamp()
                break
            except ValueError:
                continue
        else:
            time = None
        signs.feed([line])
        if time is not None:
            begin = begin or time
            steps = signs.steps
            pace.see(Signs((time - begin) * stretch, signs.phase, {"work": float(signs.work)}))
            seen = seen or pace.stands
    assert begin is not None
    assert steps > 0
    assert not seen


@pytest.mark.parametrize("phase", [START, STEP, SAVE, EVAL, GENERATE])
def test_a_run_that_stands_is_seen_after_its_patience(phase: str) -> None:
    pace = Pace()
    play(pace, [[START, 60, 1], [phase, 20, 10]])
    assert play(pace, [[phase, 2 * max(LEAST_S.values()), 1]]) != []
    quick = Pace(after=120.0)
    assert play(quick, [[START, 60, 1], [phase, 20, 10], [phase, 200, 1]]) == [200]


def test_an_end_needs_the_request_and_a_dump_in_which_nothing_moves() -> None:
    table = {
        (action, frozen): ends(action, frozen)
        for action in ("dump", "end", "requeue")
        for frozen in (True, False, None)
    }
    assert [key for key, value in table.items() if value] == [("end", True), ("requeue", True)]


@pytest.mark.parametrize(
    ("lines", "work"),
    [
        (["loading", "compiling"], 2),
        (["connection refused, retry 1", "connection refused, retry 2"], 0),
        (["Waiting for replay buffer ... step 3", "Waiting for replay buffer ... step 4"], 0),
        (["polled 0x7f00aa 1", "polled 0x7f00bb 2"], 0),
        (["item 1 of queue", "item 2 of queue", "item 3 of queue"], 1),
        (["step 1 loss 0.5", "step 2 loss 0.4"], 2),
        (["{'loss': 0.5}", "{'loss': 0.4}", "{'loss': 0.4}"], 2),
        (["Training: 10%|# | 1/10 [00:01<00:09]", "Training: 20%|## | 2/10 [00:02<00:08]"], 2),
        (["Training: 10%|# | 1/10 [00:01<00:09]", "Training: 10%|# | 1/10 [00:09<00:99]"], 1),
        (["===== Step 1/9 =====", "===== Step 1/9 ====="], 1),
    ],
)  # fmt: skip
def test_lines_of_the_same_shape_are_no_work(lines: list[str], work: int) -> None:
    signs = LineSigns()
    signs.feed(lines)
    assert signs.work == work


def test_phases_of_the_lines() -> None:
    signs = LineSigns()
    phases = []
    for line in (
        "load",
        "step 1",
        "Saving checkpoint for step 1",
        "checkpoint saved, took 3 s",
        "▶ Generating responses for batch",
    ):
        signs.feed([line])
        phases.append(signs.phase)
    assert phases == [START, STEP, SAVE, STEP, GENERATE]


def test_kinds_from_outside() -> None:
    idle, spins, computes = {"cores": 0.0}, {"cores": 0.2, "gpu": 100.0}, {"cores": 7.5}
    for load, words in (
        (idle, "no output, and hardly any CPU (0.0 cores)"),
        (spins, "may wait in a collective"),
        (computes, "7.5 cores"),
    ):
        pace = Pace()
        for now in range(12):
            pace.see(Signs(float(now), STEP, {}, load))
        assert words in kind(pace, "", 0)
    assert "none of them a sign of work" in kind(Pace(), "", 40)
    assert "generates all the time" in kind(Pace(), "Running: 3 reqs", 0)
