"""Slurm's texts, recorded from Slurm 22.05.8 (squeue, sacct, sinfo, sbatch), into states and back."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jobspec.launchers.base import JobState, JobStatus
from jobspec.launchers.slurm import commands

SQUEUE = """\
7|CANCELLED|me|2026-11-28T01:13:11|n2|2026-11-28T01:13:12|cancelme|None
1|COMPLETED|me|2026-11-28T01:13:11|n1|2026-11-28T01:13:12|ok|None
5_0|COMPLETED|me|2026-11-28T01:13:11|n1|2026-11-28T01:13:12|arr|None
2|FAILED|me|2026-11-28T01:13:11|n1|2026-11-28T01:13:12|seven|NonZeroExitCode
5_1|FAILED|me|2026-11-28T01:13:11|n1|2026-11-28T01:13:12|arr|NonZeroExitCode
4|PENDING|me|2026-11-28T01:13:11||2027-11-28T01:13:12|waits|Resources
5_3|PENDING|me|2026-11-28T01:13:11||N/A|arr|JobArrayTaskLimit
6|PENDING|me|2026-11-28T01:13:11||N/A|held|JobHeldUser
3|RUNNING|me|2026-11-28T01:13:11|n[1-2]|2026-11-28T01:13:12|sleeper|None
5_2|RUNNING|me|2026-11-28T01:13:11|n1|2026-11-28T01:13:14|arr|None
"""
SACCT = """\
1|COMPLETED|0:0|n1|2026-11-28T01:13:12|me|2026-11-28T01:13:11|ok
2|FAILED|7:0|n1|2026-11-28T01:13:12|me|2026-11-28T01:13:11|seven
3|RUNNING|0:0|n[1-2]|2026-11-28T01:13:12|me|2026-11-28T01:13:11|sleeper
4|PENDING|0:0|None assigned|Unknown|me|2026-11-28T01:13:11|waits
7|CANCELLED by 0|0:0|n2|2026-11-28T01:13:12|me|2026-11-28T01:13:11|cancelme
5_0|COMPLETED|0:0|n1|2026-11-28T01:13:12|me|2026-11-28T01:13:11|arr
5_1|FAILED|3:0|n1|2026-11-28T01:13:12|me|2026-11-28T01:13:11|arr
5_2|RUNNING|0:0|n1|2026-11-28T01:13:14|me|2026-11-28T01:13:11|arr
5_[3-5%2]|PENDING|0:0|None assigned|Unknown|me|2026-11-28T01:13:11|arr
"""
SACCT_REQUEUED = """\
11|REQUEUED|0:0|n1|2026-11-28T01:13:16|me|2026-11-28T01:13:11|requeued
11|COMPLETED|0:0|n1|2026-11-28T01:13:24|me|2026-11-28T01:13:11|requeued
"""


def test_queue_rows_carry_state_nodes_and_reason() -> None:
    rows = {(row.job_id, row.task): row for row in commands.parse_squeue(SQUEUE)}
    assert rows["3", None].status == JobStatus(
        JobState.RUNNING, "", None, "n[1-2]", start="2026-11-28T01:13:12", raw="RUNNING"
    )
    assert rows["4", None].status.reason == "Resources"
    assert rows["6", None].status.start == ""
    assert rows["5", 3].status.state is JobState.PENDING
    assert rows["2", None].job_name == "seven"
    assert len(rows) == 10


def test_reason_may_hold_the_separator() -> None:
    row = commands.parse_squeue("9|PENDING|me|N/A||N/A|x|launch failed | held\n")[0]
    assert row.status.reason == "launch failed | held"


def test_banner_lines_are_no_jobs() -> None:
    text = "Welcome | to | the | cluster | on | this | login node\n\n" + SQUEUE
    assert commands.parse_squeue(text) == commands.parse_squeue(SQUEUE)


def test_accounting_rows_carry_exit_codes_and_expand_arrays() -> None:
    found = commands.latest(commands.parse_sacct(SACCT))
    assert found["2", None].exit_code == 7
    assert found["7", None].state is JobState.CANCELLED
    assert found["7", None].raw == "CANCELLED by 0"
    assert [found["5", task].state for task in (0, 1, 2, 3, 4, 5)] == [
        JobState.COMPLETED,
        JobState.FAILED,
        JobState.RUNNING,
        JobState.PENDING,
        JobState.PENDING,
        JobState.PENDING,
    ]
    assert found["4", None].nodes == ""


def test_requeued_job_counts_its_restarts() -> None:
    found = commands.latest(commands.parse_sacct(SACCT_REQUEUED))
    assert (found["11", None].state, found["11", None].restarts) == (JobState.COMPLETED, 1)


# As Slurm 22.05 told of a heterogeneous job that lost a node and was started again.
SACCT_COMPONENTS = """\
19+0|NODE_FAIL|0:0|n4|2026-11-30T03:53:07|root|2026-11-30T03:53:06|het
19+1|NODE_FAIL|0:0|n[1-2]|2026-11-30T03:53:07|root|2026-11-30T03:53:06|het
19+1|{second}|5:0|n[1-2]|2026-11-30T03:54:07|root|2026-11-30T03:53:06|het
19+0|{first}|0:0|n4|2026-11-30T03:54:07|root|2026-11-30T03:53:06|het
"""


@pytest.mark.parametrize(
    ("first", "second", "whole"),
    [
        ("COMPLETED", "COMPLETED", JobState.COMPLETED),
        ("COMPLETED", "FAILED", JobState.FAILED),
        ("NODE_FAIL", "COMPLETING", JobState.COMPLETING),
        ("RUNNING", "COMPLETED", JobState.RUNNING),
    ],
)
def test_components_of_a_job_are_one_job(first: str, second: str, whole: JobState) -> None:
    text = SACCT_COMPONENTS.format(first=first, second=second)
    found = commands.latest(commands.parse_sacct(text))
    assert set(found) == {("19", None)}
    status = found["19", None]
    assert (status.state, status.nodes, status.restarts) == (whole, "n4,n[1-2]", 1)


@pytest.mark.parametrize("state", [state for state in JobState if state is not JobState.MISSING])
def test_every_state_is_read_back(state: JobState) -> None:
    assert commands.parse_state(state.value) is state
    assert commands.parse_state(f"{state.value}+") is state, "sacct cuts long words so"


def test_job_that_slurm_starts_again_at_once_is_requeued() -> None:
    """Source: `job_state_string` of Slurm 25.11."""
    assert commands.parse_state("EXPEDITING") is JobState.REQUEUED


def test_unknown_state_stays_unknown_with_its_word() -> None:
    row = commands.parse_squeue("9|SHRINKING|me|N/A|n1|N/A|x|None\n")[0]
    assert (row.status.state, row.status.raw) == (JobState.UNKNOWN, "SHRINKING")
    assert not row.status.state.final


@pytest.mark.parametrize(
    ("text", "code"),
    [("0:0", 0), ("7:0", 7), ("0:15", 143), ("0:9", 137), ("", None), ("7", None), ("a:b", None)],
)
def test_exit_codes(text: str, code: int | None) -> None:
    assert commands.parse_exit_code(text) == code


@pytest.mark.parametrize(
    ("text", "job_id", "tasks"),
    [
        ("7", "7", (None,)),
        ("7_3", "7", (3,)),
        ("7_[1-3]", "7", (1, 2, 3)),
        ("7_[0-6:2]", "7", (0, 2, 4, 6)),
        ("7_[1,4-5%2]", "7", (1, 4, 5)),
        ("7_[1,...]", "7", (1,)),
        ("7+1", "7", (None,)),
    ],
)
def test_job_ids(text: str, job_id: str, tasks: tuple[int | None, ...]) -> None:
    assert commands.parse_job_id(text) == (job_id, tasks)


@given(st.sets(st.integers(0, 400), min_size=1, max_size=40), st.integers(1, 10**9))
def test_any_array_is_expanded_to_its_tasks(tasks: set[int], job: int) -> None:
    ranges: list[list[int]] = []
    for task in sorted(tasks):
        if ranges and task == ranges[-1][1] + 1:
            ranges[-1][1] = task
        else:
            ranges.append([task, task])
    text = ",".join(str(a) if a == b else f"{a}-{b}" for a, b in ranges)
    assert commands.parse_job_id(f"{job}_[{text}%3]") == (str(job), tuple(sorted(tasks)))


@given(st.text(max_size=80))
def test_no_text_breaks_the_parsers(text: str) -> None:
    for row in (*commands.parse_squeue(text), *commands.parse_sacct(text)):
        assert row.job_id.isdigit()


@pytest.mark.parametrize("text", ["", "x", "12.batch", "12_", "_3", "12_[", "1 2"])
def test_bad_job_ids_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match="is not a Slurm job id"):
        commands.parse_job_id(text)


@pytest.mark.parametrize(
    ("text", "job_id"),
    [("1234\n", "1234"), ("1234;cluster\n", "1234"), ("Welcome!\n1234\n", "1234"), ("", ""), ("no id\n", "")],
)
def test_submission_answer(text: str, job_id: str) -> None:
    assert commands.parse_submitted(text) == job_id


def test_queue_without_accounting_is_believed() -> None:
    queued = JobStatus(JobState.RUNNING)
    assert commands.merge(queued, None) is queued


def test_exit_code_comes_from_accounting() -> None:
    queued = JobStatus(JobState.FAILED, "NonZeroExitCode", nodes="n1")
    accounted = JobStatus(JobState.FAILED, "", 7, "n1", restarts=2)
    assert commands.merge(queued, accounted) == JobStatus(
        JobState.FAILED, "NonZeroExitCode", 7, "n1", restarts=2
    )


def test_accounting_that_lags_gives_no_exit_code() -> None:
    """sacct shows 0:0 for a job that it still calls running; that is not how a failed job ended."""
    queued = JobStatus(JobState.FAILED, "NonZeroExitCode")
    accounted = JobStatus(JobState.RUNNING, "", 0)
    assert commands.merge(queued, accounted).exit_code is None


def test_requeued_job_is_what_the_queue_says() -> None:
    queued = JobStatus(JobState.PENDING, "BeginTime")
    accounted = JobStatus(JobState.REQUEUED, "", 0)
    assert commands.merge(queued, accounted).state is JobState.PENDING


def test_record_that_was_never_closed_is_not_running() -> None:
    """NVIDIA/Model-Optimizer#1900: a job that left the queue with an open record looked alive for ever."""
    found = commands.merge(None, JobStatus(JobState.RUNNING, "", 0))
    assert found.state is JobState.UNKNOWN
    assert "does not know the job" in found.reason


def test_job_that_nobody_knows_is_missing() -> None:
    assert commands.merge(None, None).state is JobState.MISSING


@pytest.mark.parametrize(
    ("states", "summed", "code"),
    [
        (("COMPLETED", "COMPLETED"), JobState.COMPLETED, 0),
        (("COMPLETED", "FAILED"), JobState.FAILED, 3),
        (("FAILED", "RUNNING"), JobState.RUNNING, None),
        (("FAILED", "PENDING"), JobState.PENDING, None),
        (("PENDING", "RUNNING"), JobState.RUNNING, None),
        (("COMPLETED", "OUT_OF_MEMORY"), JobState.OUT_OF_MEMORY, 3),
    ],
)
def test_array_is_summed_up(states: tuple[str, ...], summed: JobState, code: int | None) -> None:
    tasks = {
        index: JobStatus(JobState(state), exit_code=0 if state == "COMPLETED" else 3)
        for index, state in enumerate(states)
    }
    found = commands.summarise(tasks)
    assert (found.state, found.exit_code) == (summed, code)
    assert all(f"1 {state}" in found.reason or f"2 {state}" in found.reason for state in states)


@pytest.mark.parametrize(
    ("text", "fix"),
    [
        ("sbatch: error: invalid partition specified: nosuch", "slurm.partition"),
        ("sbatch: error: Batch job submission failed: Invalid account or account/partition", "slurm.account"),
        ("sbatch: error: Batch job submission failed: Invalid job array specification", "limits.max_array"),
        ("sbatch: option '--requeue' doesn't allow an argument", "slurm.requeue"),
        ("Batch job submission failed: Requested operation not supported on this system", "slurm.requeue"),
        ("sbatch: error: Memory specification can not be satisfied", "resources.memory"),
        ("Batch job submission failed: Requested node configuration is not available", "sinfo -N"),
        ("sbatch: unrecognized option '--nonsense'", "extra_sbatch"),
        ("sbatch: error: Batch job submission failed: Invalid qos specification", "slurm.qos"),
        ("sbatch: error: Requested time limit is invalid (missing or exceeds)", "resources.time"),
        ("sbatch: fatal: Could not establish a configuration source", "SLURM_CONF"),
        ("sbatch: error: something new", "as said"),
    ],
)  # fmt: skip
def test_refusals_name_the_key_to_change(text: str, fix: str) -> None:
    assert fix in commands.refusal_fix(text, "as said")


@pytest.mark.parametrize(
    "text",
    [
        "squeue: error: Unable to contact slurm controller (connect failure)",
        "slurm_load_jobs error: Unable to contact slurm controller (connect failure)",
        "sbatch: error: Batch job submission failed: Socket timed out on send/recv operation",
        "sbatch: error: Slurm temporarily unable to accept job, sleeping and retrying",
        "slurm_load_jobs error: Slurm backup controller in standby mode",
        "slurm_load_jobs error: Controller is in standby mode, try a different controller",
    ],
)
def test_texts_of_a_busy_controller_are_transient(text: str) -> None:
    assert commands.is_transient(text)


def test_a_refusal_is_not_transient() -> None:
    assert not commands.is_transient(
        "sbatch: error: Batch job submission failed: Invalid partition name specified"
    )


def test_many_ids_do_not_pass_the_kernels_limit_for_one_argument() -> None:
    ids = [str(10**7 + number) for number in range(commands.MAX_IDS + 1)]
    argv = commands.squeue_argv(ids)
    assert argv[-1] == "--me", "the login node's user, who may have another name than here"
    assert max(map(len, commands.squeue_argv(ids[:-1]))) < 128 * 1024


def test_final_states_never_hold_nodes() -> None:
    assert not [state for state in JobState if state.final and state.active]
    assert {state.value for state in JobState if state.final} >= {
        "COMPLETED", "FAILED", "CANCELLED", "TIMEOUT", "OUT_OF_MEMORY", "NODE_FAIL", "PREEMPTED",
        "DEADLINE", "BOOT_FAIL",
    }  # fmt: skip


def test_status_survives_its_file() -> None:
    status = JobStatus(
        JobState.FAILED, "x", 3, "n1", 1, raw="FAILED", tasks={0: JobStatus(JobState.COMPLETED, exit_code=0)}
    )
    again = JobStatus.from_json(status.to_json())
    assert again == status
    assert again.tasks[0].state is JobState.COMPLETED
