"""Silence before an end, and attempts in one log: siblings of the public failures, and healthy runs."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from jobspec import log_search
from jobspec.triage import first_cause, scan, scan_files
from tests.corpus.line_kit import (
    CANCELLED,
    DISK,
    EXITED,
    HOUR,
    LIMIT,
    OOM,
    PREEMPTED,
    at,
    cause_of,
    end,
    raised,
    ray_starts,
    shown,
    verl_steps,
)

# -- silence -------------------------------------------------------------------------------------------


def trl(steps: int, pace: int, ending: str, *, joint: str = "\n") -> str:
    """TRL's console: progress bars, dicts without times, and few lines with one."""
    states = ["  0%|          | 0/400 [00:00<?, ?it/s]"]
    for step in range(1, steps + 1):
        minutes, seconds = divmod(step * pace, 60)
        clock = f"{minutes // 60}:{minutes % 60:02d}:{seconds:02d}"
        states.append(f" {step // 4}%|▏         | {step}/400 [{clock}<37:41:20, {pace:.2f}s/it]")
        states.append(f"{{'loss': 0.01, 'reward': 0.2, 'epoch': 0.0{step}}}")
    head = [f"[{at(0)}] INFO loading model", f"[{at(60)}] ***** Running training *****"]
    return "\n".join([*head, joint.join(states), ending])


def skyrl(steps: int) -> tuple[list[str], int]:
    """SkyRL's log with its timers, and how many seconds it took."""
    lines, now = list[str](), 0
    for _ in range(steps):
        for phase, took in (("generate", 60), ("train_critic_and_policy", 40), ("sync_weights", 5)):
            head = "(skyrl_entrypoint pid=4021) {}.102 | INFO     | skyrl.train.trainer:train:214 - "
            lines.append(f"{head.format(at(now))}Started: '{phase}'")
            now += took
            lines.append(f"{head.format(at(now))}Finished: '{phase}', time cost: {took}.0s")
        lines.append(f"{head.format(at(now))}Finished: 'step', time cost: 105.0s")
    return lines, now


def engine(tokens: float, running: int, seconds: float) -> str:
    return (
        f"(APIServer pid=1) INFO {at(seconds)[5:]} [loggers.py:181] Engine 000: Avg prompt throughput: 0.0"
        f" tokens/s, Avg generation throughput: {tokens} tokens/s, Running: {running} reqs, Waiting: 0 reqs"
    )


def heartbeats(running: int) -> list[str]:
    """An engine that reports every ten seconds: it works for five minutes, then lives for eight hours."""
    works = [engine(910.9, 17, 10 * number) for number in range(30)]
    lives = [engine(0.0, running, 10 * number) for number in range(30, 30 + 8 * 360)]
    return [*works, *lives, end(LIMIT, 300 + 8 * HOUR)]


SKYRL, TOOK = skyrl(10)
UNTIL_TRL = 60 + 20 * 346  # seconds
STALLS = {
    "trl": (trl(20, 346, end(LIMIT, UNTIL_TRL + 8 * HOUR + 1000)).splitlines(), "{'loss'"),
    "trl, one line of bars": (
        trl(20, 346, end(LIMIT, UNTIL_TRL + 8 * HOUR + 1000), joint="\r").split("\n"),
        "{'loss'",
    ),
    "trl, cancelled": (trl(20, 346, end(CANCELLED, UNTIL_TRL + 6 * HOUR + 2000)).splitlines(), "{'loss'"),
    "engine without requests": (heartbeats(0), "Avg generation throughput: 910.9"),
    "engine that hangs": (heartbeats(8), "Avg generation throughput: 910.9"),
    "skyrl": ([*SKYRL, end(LIMIT, TOOK + 4 * HOUR + 1200)], "Finished: 'step'"),
    "verl's buffer": (
        [
            ray_starts(0),
            *(
                line
                for step in range(1, 31)
                for line in (
                    *verl_steps(step),
                    f"Training Progress:  {step}%|  | {step}/405 [{step * 2:02d}:05<9:00:00, 125.0s/it]",
                )
            ),
            *(f"{at(31 * 125 + n * 60)} INFO pending: 3, running: 1, finished: 508" for n in range(300)),
            end(CANCELLED, 31 * 125 + 302 * 60),
        ],
        "Training Progress:",
    ),
    "setup": (
        [
            f"[{at(0)}] ray.sub: head on g17",
            f"{at(200)} INFO creating placement group with 16 bundles",
            end(LIMIT, 4 * HOUR + 700),
        ],
        "creating placement group",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", STALLS)
def test_end_after_long_silence_is_a_stall(name: str) -> None:
    lines, last = STALLS[name]
    cause = cause_of(lines)
    assert cause is not None and (cause.kind, cause.verdict) == ("stall", "Blocked"), cause
    assert last in cause.text and "inferred" in cause.why
    assert "resources.time" not in cause.fix


@pytest.mark.parametrize("name", STALLS)
def test_blocks_do_not_change_the_stall(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Later blocks of a large log are looked at less closely."""
    whole = cause_of(STALLS[name][0])
    monkeypatch.setattr(log_search, "BLOCK_BYTES", 3000)
    monkeypatch.setattr(scan, "HEAD_BYTES", 3000)
    cut = cause_of(STALLS[name][0])
    assert whole is not None and cut is not None
    assert (cut.kind, cut.line, cut.title) == (whole.kind, whole.line, whole.title)


HEALTHY_ENDS = {
    "trl": trl(100, 346, end(LIMIT, 60 + 100 * 346 + 120)).splitlines(),
    "skyrl": [*SKYRL, end(LIMIT, TOOK + 50)],
    "skyrl in a long phase": [*SKYRL, end(LIMIT, TOOK + 1000)],
    "a trainer of one's own": [
        *(f"{at(30 * number)} INFO epoch 0 batch {number} score {number / 7:.3f}" for number in range(400)),
        end(LIMIT, 30 * 400),
    ],
    "steps without times": [ray_starts(0), *verl_steps(*range(1, 300)), end(LIMIT, 20 * HOUR + 1000)],
    "Slurm's clock an hour ahead": [*SKYRL, end(LIMIT, TOOK + HOUR + 30)],
    "Slurm's clock eight hours behind": [*SKYRL, end(LIMIT, TOOK - 8 * HOUR + 30)],
    "Slurm's clock ahead, the program's last word": [
        *SKYRL,
        end(LIMIT, TOOK + 2 * HOUR + 2000),
        f"(raylet) [{at(TOOK + 20)},011 W] (raylet) main.cc:1133: Received SIGTERM",
    ],
}  # fmt: skip


@pytest.mark.parametrize("name", HEALTHY_ENDS)
def test_end_at_the_usual_pace_stays_a_time_limit(name: str) -> None:
    assert shown(HEALTHY_ENDS[name])[0] == "slurm.time-limit"


def test_silence_that_zones_may_explain_is_told_with_its_doubt() -> None:
    cause = cause_of(HEALTHY_ENDS["Slurm's clock an hour ahead"])
    assert cause is not None
    assert "if all clocks show one zone" in cause.facts[0]
    assert cause.fix.startswith("see whether it worked until then: if it was still working")


def test_exception_at_the_beginning_of_the_silence_is_its_cause() -> None:
    thread = ["Exception in thread Thread-7:", *raised("/opt/SkyRL/gen.py", "loop", "LookupError: no uid")]
    lines = [*SKYRL, *thread, end(LIMIT, TOOK + 4 * HOUR + 1200)]
    assert shown(lines) == ("effect.exception", len(lines) - 1)


def test_exception_before_the_last_work_is_not_the_cause_of_the_silence() -> None:
    lines = [*SKYRL[:-1], *raised("/opt/SkyRL/gen.py", "loop", "LookupError: no uid"), *SKYRL[-3:-1]]
    cause = cause_of([*lines, end(LIMIT, TOOK + 4 * HOUR + 1200)])
    assert cause is not None and cause.kind == "stall"
    assert cause.facts == (f"work went on after log:{len(SKYRL) + 3}: LookupError: no uid",)


def test_of_a_line_without_a_time_in_another_log_nothing_says_that_work_went_on_after_it(
    tmp_path: Path,
) -> None:
    run, other = tmp_path / "run.log", tmp_path / "other.log"
    run.write_text("\n".join([*SKYRL[:-1], end(LIMIT, TOOK + 4 * HOUR + 1200)]))
    other.write_text("\n".join(raised("/opt/SkyRL/gen.py", "loop", "LookupError: no uid")))
    cause = first_cause(scan_files([run, other]))
    assert cause is not None and cause.kind == "stall"
    assert not [fact for fact in cause.facts if "work went on after" in fact]


def test_exception_of_a_run_that_never_worked_is_its_cause() -> None:
    lines = [
        f"{at(0)} INFO start",
        *raised("/opt/x/init.py", "build", "LookupError: no uid"),
        f"{at(60)} INFO x",
    ]
    assert shown([*lines, end(LIMIT, 4 * HOUR + 1200)]) == ("effect.exception", 5)


def test_silence_is_seen_over_files(tmp_path: Path) -> None:
    (tmp_path / "driver.log").write_text("\n".join(SKYRL))
    (tmp_path / "slurm.out").write_text("srun: job 7 queued\n" + end(LIMIT, TOOK + 4 * HOUR + 1200))
    cause = first_cause(scan_files(sorted(tmp_path.iterdir())))
    assert cause is not None and (cause.kind, Path(cause.file).name) == ("stall", "driver.log")
    assert "slurm.out:2" in cause.why


def test_work_in_another_file_is_no_silence(tmp_path: Path) -> None:
    (tmp_path / "driver.log").write_text("\n".join(SKYRL))
    late = [engine(900.0, 8, 60 * number) for number in range(260)]
    (tmp_path / "engine.log").write_text("\n".join(late))
    (tmp_path / "slurm.out").write_text(end(LIMIT, 260 * 60 + 100))
    for path in tmp_path.iterdir():
        os.utime(path, (1772500000, 1772500000))
    cause = first_cause(scan_files(sorted(tmp_path.iterdir())))
    assert cause is not None and cause.signature == "slurm.time-limit"


def test_watchdog_comes_with_the_last_work() -> None:
    watchdog = (
        "[rank3]:[E301 10:50:00.1 ProcessGroupNCCL.cpp:616] [Rank 3]"
        " Watchdog caught collective operation timeout"
    )
    cause = cause_of([*SKYRL, watchdog, "srun: error: n1: task 3: Aborted"])
    assert cause is not None and cause.signature == "effect.nccl-watchdog"
    assert cause.facts[-1].startswith(f"the last line known as a sign of work is log:{len(SKYRL)}: ")


SAVING = "(skyrl_entrypoint pid=4021) {}.102 | INFO     | skyrl.train.trainer:train:244 - {}: 'save_hf_model'"
MEGATRON_SAVES = "saving checkpoint at iteration      20 to /ckpt in torch_dist format"


@pytest.mark.parametrize(
    ("before", "after", "saves"),
    [
        ([SAVING.format(at(3000), "Started")], [], True),
        ([], [SAVING.format(at(3660), "Finished") + ", time cost: 601.62s"], True),
        ([SAVING.format(at(3000), "Finished") + ", time cost: 9.62s"], [], False),
        ([MEGATRON_SAVES], [], True),
        ([MEGATRON_SAVES, "  successfully saved checkpoint from iteration      20 to /ckpt"], [], False),
    ],
)
def test_watchdog_during_a_save_points_to_the_storage(
    before: list[str], after: list[str], saves: bool
) -> None:
    head = f"[rank3]:[E301 {at(3650)[11:]}.1 ProcessGroupNCCL.cpp:616]"
    watchdog = f"{head} Watchdog caught collective operation timeout"
    cause = cause_of([*SKYRL, *before, watchdog, *after, "srun: error: n1: task 3: Aborted"])
    assert cause is not None and cause.signature == "effect.nccl-watchdog"
    assert (cause.verdict == "Blocked", "storage" in cause.fix) == (saves, saves)


# -- attempts ------------------------------------------------------------------------------------------

ATTEMPTS = {
    "node failure, then a full disk": (
        [ray_starts(0), *verl_steps(1, 2), PREEMPTED.replace("PREEMPTION", "NODE FAILURE, SEE SLURMCTLD LOG"),
         ray_starts(HOUR), *verl_steps(3), DISK, EXITED],
        ("disk.full", 7), "Slurm lost a node of the job, or set it down (log:4)"),
    "Slurm's count of restarts": (
        ["SLURM_RESTART_COUNT=0", ray_starts(0), *verl_steps(1), OOM, EXITED,
         "SLURM_RESTART_COUNT=1", ray_starts(HOUR), *verl_steps(2), DISK],
        ("disk.full", 9), "GPU memory (log:4)"),
    "torchrun": (
        ["{'loss': 0.5, 'epoch': 0.1}",
         "[rank2]: RuntimeError: CUDA error: uncorrectable ECC error encountered",
         "[default] Worker group FAILED. 2/3 attempts left; will restart worker group",
         "{'loss': 0.4, 'epoch': 0.2}", "[rank1]: ValueError: bad sample 17"],
        ("effect.exception", 5), "a failure of a GPU, its memory or its links (log:2)"),
    "a script's first line again": (
        ["launching trainer for grpo run exp-7 on node", ray_starts(0), OOM, EXITED,
         "launching trainer for grpo run exp-7 on node", ray_starts(HOUR), *verl_steps(1), DISK],
        ("disk.full", 8), "GPU memory (log:3)"),
    "a script that counts": (
        ["=== attempt 1/3 ===", ray_starts(0), OOM, EXITED, "=== attempt 2/3 ===", ray_starts(HOUR), DISK],
        ("disk.full", 7), "GPU memory (log:3)"),
}  # fmt: skip


@pytest.mark.parametrize("name", ATTEMPTS)
def test_last_attempt_is_the_cause_and_earlier_ends_are_told(name: str) -> None:
    lines, expected, earlier = ATTEMPTS[name]
    cause = cause_of(lines)
    assert cause is not None and (cause.signature, cause.line) == expected
    assert "inferred: this is attempt 2 in these logs" in cause.facts
    assert cause.facts[-1].startswith("attempt 1: ") and earlier in cause.facts[-1]


def test_attempt_that_went_well_has_no_cause() -> None:
    lines = [ray_starts(0), *verl_steps(1, 2), PREEMPTED, ray_starts(HOUR), *verl_steps(3, 4)]
    assert cause_of(lines) is None
    assert shown(lines[:4]) == ("slurm.preempted", 4)


def test_start_without_work_or_failure_is_no_attempt_of_its_own() -> None:
    """Another node prints the log's first line late; a requeued job has only just begun."""
    first = "{}: starting the trainer process for grpo"
    late = [first.format(0), DISK, EXITED, first.format(1)]
    assert shown(late) == ("disk.full", 2)
    assert shown([ray_starts(0), *verl_steps(1), PREEMPTED, ray_starts(HOUR)]) == ("slurm.preempted", 3)


def test_ranks_that_start_late_are_no_new_attempt() -> None:
    start = "[rank{}]: " + f"{at(0)} INFO starting trainer process for grpo"
    lines = [start.format(0), start.format(1), f"[rank1]: {DISK}", start.format(2), EXITED]
    cause = cause_of(lines)
    assert cause is not None and (cause.signature, cause.line, cause.facts) == ("disk.full", 3, ())


def test_line_that_every_rank_prints_is_no_new_attempt() -> None:
    start = "[rank{}]: starting the trainer process for grpo"
    lines = [start.format(0), start.format(1), f"[rank1]: {DISK}", EXITED, start.format(2), OOM]
    assert shown(lines) == ("disk.full", 3)


def test_effects_after_a_late_start_are_no_attempt_of_their_own() -> None:
    first = "n{}: starting the trainer process for grpo"
    lines = [first.format(0), f"n0: {DISK}", EXITED, first.format(1), "ray.exceptions.ActorDiedError: x"]
    assert shown(lines) == ("disk.full", 2)


def test_second_start_in_one_log_dates_the_lines_of_another(tmp_path: Path) -> None:
    out = [ray_starts(0), *verl_steps(1), PREEMPTED, ray_starts(HOUR), *verl_steps(2)]
    (tmp_path / "a.out").write_text("\n".join(out))
    (tmp_path / "b.err").write_text(f"{at(1700)} ERROR {DISK}\n{at(HOUR + 100)} ERROR x\n{OOM}\n")
    cause = first_cause(scan_files(sorted(tmp_path.iterdir())))
    assert cause is not None and cause.signature == "gpu.out-of-memory"
