"""A command of others without a criterion: judged by the end and the steps that its files show."""

from __future__ import annotations

from pathlib import Path

import pytest

from jobspec.judging.own_end import AFTER_TRAINER, ONLY_ITS_END
from jobspec.verdict import Result
from tests.judging.test_ends_beside_runs import SACCT
from tests.judging.test_runs_as_people_have_them import judged, trainer, write

PASS, FAIL, BLOCKED = Result.PASS, Result.FAIL, Result.BLOCKED
CRASH = ["Traceback (most recent call last):", '  File "a.py", line 3, in <module>', "KeyError: 'x'"]
STEPS = "exit code 0 (train.log:123); 60 of 60 planned train steps ran"
LAST = "exit code 0 (train.log:123)"
SLURM = f"{SACCT}\n7  a  COMPLETED  0:0  01:00:00  02:00:00"
END = "{'train_runtime': 400.0, 'epoch': 1.0}"


@pytest.mark.parametrize(
    ("lines", "files", "result", "said"),
    [
        ([*trainer(60, 60), "+ rc=0"], {}, PASS, STEPS),
        ([*trainer(60, 60), "[2026-08-19 11:13:02] rc 0"], {}, PASS, STEPS),
        ([*trainer(60, 60), "[2026-08-19 11:13:02] rc 1"], {}, FAIL, "exit code"),
        ([*trainer(60, 60), "+ rc=0", "+ torchrun eval.py"], {}, BLOCKED, "jobspec read no exit code"),
        ([*trainer(60, 60), "exit=0"], {}, PASS, LAST),
        ([*trainer(60, 60), "+ exit code 0"], {}, PASS, LAST),
        ([*trainer(60, 60), "run.py ended with exit code 0, 4 h 17 min"], {}, PASS, LAST),
        ([*trainer(60, 60), "train_sft: done, exit 0"], {}, PASS, LAST),
        (trainer(60, 60), {"exit_code": "0"}, PASS, "exit code 0 (exit_code:1)"),
        (trainer(60, 60), {"sacct.txt": SLURM}, PASS, "(sacct.txt:2)"),
        (trainer(40, 60), {"exit_code": "0"}, BLOCKED, "step 41 is the first missing one"),
        ([*trainer(60, 60), END], {}, PASS, "the trainer logged its end (`train_runtime`)"),
        ([*trainer(40, 60), END], {}, BLOCKED, "step 40 of 60"),
        (trainer(60, 60), {}, BLOCKED, "jobspec read no exit code of it"),
        (["exit code 0", *trainer(60, 60)], {}, BLOCKED, "is no end of the run: records follow it"),
        ([*trainer(59, 60), *CRASH, "exit code: 0"], {}, FAIL, "but a log shows a failure"),
        (["building", "done"], {"rc": "0"}, PASS, "exit code 0 (rc:1)"),
        (["building", *CRASH], {"rc": "0"}, FAIL, "but a log shows a failure"),
        ([*trainer(60, 60), "{'loss': nan, 'epoch': 1.1}", "exit code 0"], {}, FAIL, "is nan"),
    ],
)  # fmt: skip
def test_command_without_a_criterion_is_judged_by_its_end(
    lines: list[str], files: dict[str, str], result: Result, said: str, tmp_path: Path
) -> None:
    write(tmp_path / "train.log", lines)
    for name, text in files.items():
        write(tmp_path / name, [text])
    verdict = judged(tmp_path)
    reasons = " ".join(item.reason for item in verdict.deliverables)
    assert (verdict.result, said in f"{verdict.reason} {reasons}") == (result, True), (
        verdict.reason,
        reasons,
    )
    assert (ONLY_ITS_END in verdict.limitations) >= (result is PASS)
    assert (AFTER_TRAINER in verdict.limitations) == ("the trainer logged" in said)


def test_an_exit_code_alone_is_no_pass(tmp_path: Path) -> None:
    write(tmp_path / "exit_code", ["0"])
    assert judged(tmp_path).result is BLOCKED


def test_exit_code_of_an_earlier_log_is_not_that_of_the_run(tmp_path: Path) -> None:
    write(tmp_path / "attempt1.log", [*trainer(40, 60), "exit code 0"])
    write(
        tmp_path / "attempt2.log", ["slurmstepd: error: *** JOB 7 ON a CANCELLED AT 2025-06-24T03:12:44 ***"]
    )
    assert judged(tmp_path).result is BLOCKED
    run = judged(tmp_path, "trl", steps=40).deliverable("Run")
    assert run is not None and "exit code 0" not in run.reason


def test_an_interrupt_says_what_the_run_had_waited_for(tmp_path: Path) -> None:
    """Ctrl-C is not the cause of a run that was never given its GPUs."""
    error = "Error: No available node types can fulfill resource request {'GPU': 8.0}."
    waits = [
        f"(autoscaler +{at}m{at + 3}s) {error} Add suitable node types to this cluster." for at in range(1, 9)
    ]
    write(
        tmp_path / "train.log", ["Total training steps: 9420", *waits, "KeyboardInterrupt", "exit status 130"]
    )
    verdict = judged(tmp_path, "command", steps=10)
    assert verdict.result is BLOCKED
    said = "8 lines above it say `Error: No available node types can fulfill resource request {'GPU':`"
    assert f"(SIGINT, as of Ctrl-C); {said}, the first is train.log:2" in verdict.reason


def test_records_that_name_no_step_are_no_steps(tmp_path: Path) -> None:
    """Dicts without a bar are counted: how many steps each stands for, nothing says."""
    values = [f"{{'loss': {1 - at / 100}, 'learning_rate': 1e-06, 'epoch': {at / 40}}}" for at in range(40)]
    write(tmp_path / "train.log", [*values, END, "exit code 0"])
    training = judged(tmp_path).deliverable("Training")
    assert training is not None
    assert training.reason.startswith(
        "40 records of train steps were read, and no step's number beside them; all"
    )
