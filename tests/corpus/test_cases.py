"""Failures that other people reported in public, as whole logs: first cause, class and next step."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import pytest

from jobspec.triage import first_cause, scan_files

CASES = Path(__file__).parent / "reported" / "cases"


class Right(NamedTuple):
    """What is right of a log: the line, its signature, class and verdict, and what the next step says."""

    line: int
    signature: str
    kind: str
    verdict: str
    fix: str


RIGHT = {
    "sglang-resume-oom": Right(34, "gpu.engine-wake", "gpu-memory", "Blocked", "gpu_memory_utilization"),
    "efa-not-in-container": Right(18, "network.efa", "network", "Blocked", "/dev/infiniband"),
    "preempt-stale-store": Right(27, "network.stale-store", "stale-state", "Blocked", "SLURM_RESTART_COUNT"),
    "stall-then-time-limit": Right(494, "run.stall", "stall", "Blocked", "what it waited for"),
    "stall-then-time-limit-cancelled": Right(494, "run.stall", "stall", "Blocked", "what it waited for"),
    "cgroup-device-rules": Right(8, "container.gpu-hook", "container", "Blocked", "site"),
    "sleep-in-flight": Right(27, "gpu.illegal-access-asleep", "rollout", "Fail", "before the engine sleeps"),
    "weight-update-active": Right(22, "provider.weight-sync-busy", "refit", "Fail", "one transfer at a time"),
    "errno99-bind": Right(14, "network.bind-address", "network", "Blocked", "GPUs per node"),
    "errno99-bind-without-frames": Right(13, "network.bind-address", "network", "Blocked", "GPUs per node"),
    "mem-exclusive": Right(12, "slurm.memory-options", "slurm", "Blocked", "unset SLURM_MEM_PER_CPU"),
    "mem-exclusive-alone": Right(1, "slurm.memory-options", "slurm", "Blocked", "unset SLURM_MEM_PER_CPU"),
    "vllm-leftover-memory": Right(9, "gpu.vllm-memory", "gpu-memory", "Blocked", "another process"),
    "no-c-compiler": Right(13, "build.compiler", "image", "Blocked", "gcc"),
    "wandb-no-network": Right(8, "hub.tracker-network", "network", "Blocked", "WANDB_MODE=offline"),
    "exception-after-steps": Right(
        133, "effect.exception", "exception", "Fail", "core_algos.py:203 compute_reinforce_advantage"
    ),
    "exception-after-steps-dtensor": Right(
        21, "effect.exception", "exception", "Fail", "grpo.py:1428 grpo_train"
    ),
}


@pytest.mark.parametrize("name", RIGHT)
def test_first_cause_of_a_whole_log(name: str) -> None:
    cause, right = first_cause(scan_files([CASES / name / "input.log"])), RIGHT[name]
    assert cause is not None
    assert (cause.line, cause.signature, cause.kind, cause.verdict) == right[:4]
    assert right.fix in cause.fix
    assert "before the" not in cause.why


def test_every_attempt_gets_its_end() -> None:
    """A preempted job was requeued and failed by itself: the second end is the cause, the first is told."""
    matches = scan_files([CASES / "preempt-stale-store" / "input.log"])
    cause = first_cause(matches)
    assert cause is not None
    assert cause.facts[0] == "inferred: this is attempt 2 in these logs"
    assert cause.facts[1].startswith("attempt 1: Slurm preempted the job, or a step of it (")
    assert cause.facts[1].endswith("preempt-stale-store/input.log:18)")
    assert "slurm.preempted" in {match.signature for match in matches if match.verdict == "Note"}


def test_stall_names_silence_phase_and_pace() -> None:
    cause = first_cause(scan_files([CASES / "stall-then-time-limit" / "input.log"]))
    assert cause is not None
    assert cause.title == "no known sign of work for 18 h 58 min before the end"
    assert "stall-then-time-limit/input.log:494, 18 h 58 min before" in cause.why
    assert "`▶ Generating responses for batch of size 1024...`" in cause.why
    assert "no pause between earlier signs of work was longer than 20 min" in cause.why
    assert "time" not in cause.fix


def test_what_all_nodes_say_is_no_matter_of_one() -> None:
    cause = first_cause(scan_files([CASES / "cgroup-device-rules" / "input.log"]))
    assert cause is not None
    assert cause.facts == (
        "srun tells of failed tasks on gb-0001, gb-0002, of which some may be effects;"
        " the line names no node",
    )


def test_a_number_before_lines_is_said_to_be_of_a_task(tmp_path: Path) -> None:
    log = tmp_path / "out"
    text = (CASES / "cgroup-device-rules" / "input.log").read_text("utf-8")
    log.write_text("".join(f"1: {line}" for line in text.splitlines(keepends=True)))
    cause = first_cause(scan_files([log]))
    assert cause is not None
    assert cause.facts[-1].endswith("names no node (a number `N:` before it is srun's, of the task)")
