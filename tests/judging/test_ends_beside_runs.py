"""How a run of others ended, by what lies beside its logs; and what is then said of it, and no more."""

from __future__ import annotations

import json
import random
from pathlib import Path

import pytest

from jobspec.cli import main
from jobspec.judging.not_proved import NO_BASELINE
from jobspec.verdict import Result, Status, Verdict
from tests.judging.test_runs_as_people_have_them import judged, trainer, write

SACCT = "JobID  JobName  State  ExitCode  Elapsed  Timelimit"
TWO = "[2025-06-11 09:00:00,101] [INFO] [launch.py:253:main] dist_world_size=2"
WELL = "[2025-06-11 10:00:00,101] [INFO] [launch.py:351:main] Process {} exits successfully."
IDLE = ("without `use_vllm`", "one seed", "no convergence", NO_BASELINE, "neither saving")


def run_of(verdict: Verdict) -> tuple[Status, str, bool]:
    run = verdict.deliverable("Run")
    assert run is not None
    return run.status, run.reason, run.required


def sft(values: list[float], total: int) -> list[str]:
    lines = ["***** Running training *****", f"  Total optimization steps = {total}"]
    for step, value in enumerate(values, 1):
        lines += [f" 3%|# | {step}/{total} [01:00<10:00,  6.11s/it]", str({"loss": value, "epoch": 0.1})]
    return lines


def test_time_limit_that_slurm_records_stopped_the_run(tmp_path: Path) -> None:
    write(tmp_path / "train.log", trainer(60, 200))
    write(tmp_path / "sacct.txt", [SACCT, "7  grpo  TIMEOUT  0:0  02:00:10  02:00:00"])
    verdict = judged(tmp_path, "trl", "learning", steps=200)
    assert verdict.result is Result.BLOCKED
    assert "time limit" in verdict.reason and "step 60" not in verdict.reason  # no file numbers the steps
    assert verdict.first_cause is not None
    assert (verdict.first_cause.file, verdict.first_cause.line) == ("sacct.txt", 2)
    training = verdict.deliverable("Training")
    assert training is not None and "would be Fail" not in training.reason
    assert not any(idle in text for idle in IDLE for text in verdict.limitations)


def test_failure_in_a_log_comes_before_that_somebody_cancelled(tmp_path: Path) -> None:
    write(
        tmp_path / "train.log",
        [*trainer(60, 200), "Traceback (most recent call last):", "  x", "KeyError: 1"],
    )
    write(tmp_path / "sacct.txt", [SACCT, "7  grpo  CANCELLED by 1001  0:0  02:00:10  08:00:00"])
    verdict = judged(tmp_path, "trl", steps=200)
    assert verdict.first_cause is not None
    assert verdict.first_cause.file == "sacct.txt"  # an exception alone says no more
    write(tmp_path / "train.log", [*trainer(60, 200), "torch.OutOfMemoryError: CUDA out of memory. Tried to"])
    verdict = judged(tmp_path, "trl", steps=200)
    assert verdict.first_cause is not None and verdict.first_cause.file == "train.log"


@pytest.mark.parametrize(
    ("name", "text", "expected"),
    [
        ("exit_code", "0", (Status.PASS, "exit code 0, which alone proves nothing", False)),
        ("run/exitcode.txt", "exit_code=1", (Status.FAIL, "the run ended with exit code 1", True)),
        ("rc", "143",
         (Status.BLOCKED, "the run ended with exit code 143 (SIGTERM, as of a time limit or `kill`)", True)),
        ("sacct.txt", f"{SACCT}\n7  a  FAILED  1:0  01:00:00  02:00:00",
         (Status.FAIL, "the run ended with exit code 1", True)),
        ("sacct.txt", f"{SACCT}\n7  a  COMPLETED  0:0  01:00:00  02:00:00",
         (Status.PASS, "exit code 0, which alone proves nothing", False)),
        ("b.log", f"{TWO}\n{WELL.format(11)}\n{WELL.format(12)}",
         (Status.PASS, "exit code 0, which alone proves nothing", False)),
        ("b.log", f"{TWO}\n{WELL.format(11)}",
         (Status.SKIPPED, "jobspec read no exit code of it", False)),
        ("b.log", "[launch.py:325:sigkill_handler] ['python', 'a.py'] exits with return code = 1",
         (Status.FAIL, "the last exit code that a log states is 1", True)),
    ],
)  # fmt: skip
def test_end_beside_the_log_is_read(
    name: str, text: str, expected: tuple[Status, str, bool], tmp_path: Path
) -> None:
    write(tmp_path / "train.log", trainer(60, 60))
    write(tmp_path / name, [text])
    verdict = judged(tmp_path, "trl", steps=60)
    assert run_of(verdict) == expected
    unread = any("no exit code of the run" in text for text in verdict.limitations)
    assert unread is (expected[0] is Status.SKIPPED)


def test_record_of_an_end_from_outside_leaves_a_proved_run(tmp_path: Path) -> None:
    write(tmp_path / "train.log", trainer(60, 60))
    write(tmp_path / "sacct.txt", [SACCT, "7  grpo  TIMEOUT  0:0  02:00:10  02:00:00"])
    verdict = judged(tmp_path, "trl", steps=60)
    assert verdict.result is Result.PASS
    assert run_of(verdict)[1:] == ("Slurm's own record says TIMEOUT: the job reached its time limit", False)


def test_a_jump_is_named_and_no_figure_speaks_against_the_sentence(tmp_path: Path) -> None:
    draw = random.Random(3)
    fell = [0.95 - 0.004 * step + draw.gauss(0, 0.005) for step in range(60)]
    jumped = [11.2, *(8.0 - 0.01 * step + draw.gauss(0, 0.1) for step in range(140))]
    write(tmp_path / "train.log", sft([*fell, *jumped], 201))
    verdict = judged(tmp_path, "trl", "learning", steps=201, learning="loss")
    learnt = verdict.deliverable("Learning")
    assert verdict.result is Result.FAIL and learnt is not None
    assert "`loss` ends higher than it began" in learnt.reason
    assert "slope" not in learnt.reason and "p = " not in learnt.reason
    assert "its lowest value is" in learnt.reason and "to 11.2 at 61" in learnt.reason
    assert verdict.first_cause is not None and verdict.first_cause.line == 2 + 2 * 61
    assert not any(idle in text for idle in IDLE for text in verdict.limitations)


def test_program_of_no_known_framework_is_judged(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write(tmp_path / "metrics.jsonl", (json.dumps({"step": n, "loss": 2 / n}) for n in range(1, 15)))
    write(tmp_path / "sacct.txt", [SACCT, "7  ft  TIMEOUT  0:0  00:10:14  00:10:00"])
    assert main(["judge", str(tmp_path), "--level", "0", "--steps", "50"]) == 3
    said = capsys.readouterr().out
    assert "time limit" in said and "step 14 of 50" in said
    assert "jobspec recognized no framework" in said and "judged as command" in said
    assert "(means of" not in said and "first and last of 14 finite values" in said
    (tmp_path / "sacct.txt").unlink()
    assert main(["judge", str(tmp_path), "--steps", "14"]) == 0
    assert main(["judge", str(tmp_path), "--level", "2"]) == 2  # of what, nobody can say


def test_several_models_are_all_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    config = ["{'reward': {'model_name': 'org/judge-7b'}}", "{'policy': {'model_name': 'org/policy-1b'}}"]
    write(tmp_path / "nemo_rl.log", ["import nemo_rl.algorithms", *config])
    main(["judge", str(tmp_path), "--framework", "nemo_rl"])
    said = capsys.readouterr().out
    assert "Model: one of `org/judge-7b`, `org/policy-1b`" in said
    assert "New provider" not in said


def test_metrics_of_another_run_prove_no_learning(tmp_path: Path) -> None:
    """The console is flat; a file beside it, which falls, is of an older run."""
    draw = random.Random(4)
    write(tmp_path / "train.log", sft([round(2 + draw.gauss(0, 0.05), 4) for _ in range(60)], 60))
    history = [{"step": at, "loss": round(2 - at / 60 + draw.gauss(0, 0.05), 4)} for at in range(1, 61)]
    (tmp_path / "trainer_state.json").write_text(
        json.dumps({"global_step": 60, "max_steps": 60, "log_history": history})
    )
    verdict = judged(tmp_path, "trl", "learning", learning="loss", steps=60)
    assert verdict.result is Result.BLOCKED
    assert "`trainer_state.json` and `train.log` hold other values of `loss`" in verdict.reason


def test_asked_steps_that_no_file_shows_are_not_proved(tmp_path: Path) -> None:
    write(tmp_path / "train.log", ["Filtering: 12000 -> 0 rows", "done", "exit code 0"])
    verdict = judged(tmp_path, "command", "run", steps=100)
    assert verdict.result is Result.BLOCKED
    assert "no loss and no reward of the 100 train steps" in verdict.reason


def test_save_that_fails_behind_the_last_step_ends_the_run(tmp_path: Path) -> None:
    """Here no word of the Trainer says that it came to its end; a time limit leaves what is proved."""
    draw = random.Random(4)
    lines = sft([2 - at / 60 + draw.gauss(0, 0.05) for at in range(60)], 60)
    lines = [line.replace("'epoch'", "'learning_rate': 1e-05, 'epoch'") for line in lines]
    broken = ["Traceback (most recent call last):", '  File "t.py", line 3, in <module>',
              "OSError: [Errno 28] No space left on device"]  # fmt: skip
    end = str({"train_runtime": 61.0, "train_loss": 1.5, "epoch": 1.0})
    limit = "slurmstepd: error: *** JOB 9 ON n1 CANCELLED AT 2026-01-03T10:00:00 DUE TO TIME LIMIT ***"
    hung = [
        "[rank0]:[E1103 10:00:00 ProcessGroupNCCL.cpp:616] [Rank 0] Watchdog caught collective operation"
        " timeout: WorkNCCL(SeqNum=12, Timeout(ms)=600000) ran for 600010 milliseconds before timing"
        " out."
    ]
    write(tmp_path / "train.log", [*lines, *hung])
    assert judged(tmp_path, "trl", "smoke", steps=60).result is not Result.PASS
    retry = "wandb: Network error (ConnectTimeout), entering retry loop."
    for behind, result in (
        (broken, Result.BLOCKED),
        ([end, *broken], Result.PASS),
        ([limit], Result.PASS),
        ([retry], Result.PASS),
    ):
        write(tmp_path / "train.log", [*lines, *behind])
        assert judged(tmp_path, "trl", "smoke", steps=60).result is result


@pytest.mark.parametrize(
    ("last", "code"),
    [
        (["verl exited with 1"], 1),
        (["+ echo train.py exited with 0", "train.py exited with 0"], 0),
        (["$ echo $?", "0"], 0),
        (["(venv) me@n1:~$ echo $?", "1", "me@n1:~$ "], 1),
        (["worker-3 exited with 1"], None),
        (["rank 3 exited with 1"], None),
        (["vllm_server exited with 1"], None),
        (["verl exited with 1", "saved the model"], None),
        (["$ echo $?", "0", "$ ls", "out"], None),
        (["step 7 exited with 1 of 3"], None),
    ],
)
def test_last_words_of_a_script_state_its_exit_code(
    last: list[str], code: int | None, tmp_path: Path
) -> None:
    write(tmp_path / "train.log", [*trainer(60, 60), *last])
    verdict = judged(tmp_path, "trl", steps=60)
    told = {
        0: "exit code 0, which alone proves nothing",
        1: "the last exit code that a log states is 1",
        None: "jobspec read no exit code of it",
    }
    assert run_of(verdict)[1] == told[code]
    assert any("no exit code of the run" in text for text in verdict.limitations) is (code is None)


def test_end_of_an_earlier_process_is_no_cause_where_the_last_one_ended_well(tmp_path: Path) -> None:
    limit = "slurmstepd: error: *** JOB 7 ON n1 CANCELLED AT 2026-06-01T11:02:10 DUE TO PREEMPTION ***"
    write(tmp_path / "1.log", [*sft([1.0, 0.9], 4), limit])
    write(tmp_path / "2.log", [*sft([1.0, 0.9, 0.8, 0.7], 4), "exit code: 0"])
    verdict = judged(tmp_path, "trl", "checkpoint", steps=4)
    assert verdict.first_cause is not None
    assert verdict.first_cause.kind != "preempted" and not verdict.first_cause.signature
