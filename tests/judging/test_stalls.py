"""A run that stood still, as its watch has told: the first cause, unless another one came before it."""

from __future__ import annotations

from pathlib import Path

import pytest

from jobspec.evidence.read import read_evidence
from jobspec.judging.judge import judge
from jobspec.verdict import Cause, Result
from tests.kits.verdict_kit import PHASES, RunFolder, StandInFramework

OOM = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2 GiB"
WATCHDOG = "[Rank 3] Watchdog caught collective operation timeout"
STEP = "step:1 - actor/loss:0.5 - training/global_step:1"


def stalled(root: Path, log: str, rule: str = "stall.outside", seen_lines: int = 1) -> RunFolder:
    """A run whose watch saw a stall after the first `seen_lines` lines of its log."""
    run = RunFolder(root)
    for phase in PHASES[:5]:
        run.phase(phase)
    run.event("driver", "start")
    run.clock += 900
    told = {
        "what": "stall",
        "seconds": 900,
        "frozen": True,
        "dump": "1",
        "lines": {"logs/n1/train.log": seen_lines},
    }
    run.event("driver", "progress", data=told)
    run.finding("driver", rule, "the run stands still: rank 2 on `n1` sleeps", severity="warning", fix="look")
    run.log(log)
    run.write()
    run.scheduler("TIMEOUT")
    return run


def cause(run: RunFolder) -> Cause:
    verdict = judge(read_evidence(run.root), StandInFramework())
    assert verdict.result is not Result.PASS
    assert verdict.first_cause is not None
    return verdict.first_cause


@pytest.mark.parametrize(
    ("rule", "result"), [("stall.outside", Result.BLOCKED), ("driver.stall", Result.FAIL)]
)
def test_the_stall_is_the_first_cause(tmp_path: Path, rule: str, result: Result) -> None:
    """Not the time limit that ended it, nor the watchdog that noticed it later."""
    found = cause(stalled(tmp_path, f"{STEP}\n{WATCHDOG}\n{OOM}\n", rule))
    assert (found.kind, found.verdict, found.node) == (rule, result, "n1")
    assert found.text == "the run stands still: rank 2 on `n1` sleeps"


def test_a_failure_before_it_wins(tmp_path: Path) -> None:
    found = cause(stalled(tmp_path, f"{STEP}\n{OOM}\nwaiting\n", seen_lines=2))
    assert found.kind == "gpu-memory"


def test_a_run_that_went_on_has_another_cause(tmp_path: Path) -> None:
    run = stalled(tmp_path, f"{STEP}\n")
    run.event("driver", "progress", data={"what": "went-on", "sign": "steps"})
    run.write()
    assert cause(run).kind == "TIMEOUT"
